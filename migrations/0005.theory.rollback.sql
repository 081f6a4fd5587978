DROP TABLE bandwidth;
DROP TABLE theory;
DROP TABLE phases;

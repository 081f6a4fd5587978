DROP TABLE transitions;

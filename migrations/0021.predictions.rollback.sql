DROP TABLE predictions;

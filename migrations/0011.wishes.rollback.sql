DROP TABLE wishes;

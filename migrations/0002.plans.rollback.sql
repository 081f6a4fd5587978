DROP TABLE reasons;

DROP TABLE outcomes;

DROP TABLE steps;

DROP TABLE plans;

DROP TABLE rounds;

DROP TABLE control;

DROP TABLE events;

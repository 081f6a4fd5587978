DROP TABLE placements;

DROP TABLE jobs;

-- Whether a job's reports show how long an iteration takes; NULL if it reported nothing.

ALTER TABLE jobs ADD COLUMN time_known boolean;

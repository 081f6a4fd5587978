-- Whether a job's ranks tell how long they communicate; NULL: unknown, or one rank.

ALTER TABLE jobs ADD COLUMN communication_timed boolean;

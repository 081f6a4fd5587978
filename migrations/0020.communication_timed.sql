-- Whether a job's ranks report communication times; NULL if unknown, or with a single rank.

ALTER TABLE jobs ADD COLUMN communication_timed boolean;

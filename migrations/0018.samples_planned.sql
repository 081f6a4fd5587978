-- Samples that a job's training will have done at its end, by its loops; NULL if they do not show it.

ALTER TABLE jobs ADD COLUMN samples_planned double precision;

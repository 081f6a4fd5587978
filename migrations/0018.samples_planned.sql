-- Samples that a job's training will have done at its end, as its loops show it; null: they do not.

ALTER TABLE jobs ADD COLUMN samples_planned double precision;

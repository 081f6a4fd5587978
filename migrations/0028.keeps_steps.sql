-- Whether a job's steps have the same samples on any number of GPUs; NULL if unknown.

ALTER TABLE jobs ADD COLUMN keeps_steps boolean;

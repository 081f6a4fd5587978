-- The job that reported, '' if unknown, and the index of the job's only GPU, NULL if it had several or
-- Slurm did not say.

ALTER TABLE throughput ADD COLUMN job text NOT NULL DEFAULT '';
ALTER TABLE throughput ADD COLUMN gpu integer;

-- The most GPUs that plans give a job, since it did not use others; NULL: as many as it asks for.

ALTER TABLE jobs ADD COLUMN gpus_most integer;

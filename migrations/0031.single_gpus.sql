-- Whose report it is, '' where that is not known, and the index of the job's only GPU, NULL where it
-- had several or Slurm did not say.

ALTER TABLE throughput ADD COLUMN job text NOT NULL DEFAULT '';
ALTER TABLE throughput ADD COLUMN gpu integer;

-- How many GPUs plans give a job at most, since it held others for nothing; NULL: as it asks.

ALTER TABLE jobs ADD COLUMN gpus_most integer;

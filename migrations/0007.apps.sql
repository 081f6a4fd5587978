-- How many apps shared the cluster with a job, summed over the seconds of its life.

ALTER TABLE jobs ADD COLUMN app_seconds double precision NOT NULL DEFAULT 0;

-- GPU seconds of the jobs of the same app that have ended.

ALTER TABLE jobs ADD COLUMN app_gpu_seconds double precision NOT NULL DEFAULT 0;

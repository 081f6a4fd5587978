-- GPU seconds of the ended jobs of the same app.

ALTER TABLE jobs ADD COLUMN app_gpu_seconds double precision NOT NULL DEFAULT 0;

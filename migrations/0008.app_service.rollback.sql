ALTER TABLE jobs DROP COLUMN app_gpu_seconds;

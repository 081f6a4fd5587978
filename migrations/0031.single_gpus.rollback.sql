ALTER TABLE jobs DROP COLUMN gpus_most;
ALTER TABLE throughput DROP COLUMN gpu;
ALTER TABLE throughput DROP COLUMN job;

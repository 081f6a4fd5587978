ALTER TABLE throughput DROP COLUMN batch;

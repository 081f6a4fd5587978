ALTER TABLE phases DROP COLUMN "user";
ALTER TABLE throughput DROP COLUMN "user";

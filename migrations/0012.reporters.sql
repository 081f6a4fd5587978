-- The user whose job reported: for a workload that several users name, the median user's speeds count.

ALTER TABLE throughput ADD COLUMN "user" text NOT NULL DEFAULT '';
ALTER TABLE phases ADD COLUMN "user" text NOT NULL DEFAULT '';

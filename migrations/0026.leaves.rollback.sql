ALTER TABLE bandwidth DROP COLUMN b_across;
ALTER TABLE throughput DROP COLUMN leaves;

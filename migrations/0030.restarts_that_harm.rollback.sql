DROP INDEX jobs_failed_again;
ALTER TABLE jobs DROP COLUMN failed_again;
ALTER TABLE jobs DROP COLUMN answers_signal;

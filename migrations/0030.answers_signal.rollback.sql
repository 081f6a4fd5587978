ALTER TABLE jobs DROP COLUMN answers_signal;

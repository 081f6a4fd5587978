ALTER TABLE jobs DROP COLUMN ended_by_signal;

ALTER TABLE jobs DROP COLUMN communication_timed;

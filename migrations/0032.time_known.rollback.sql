ALTER TABLE jobs DROP COLUMN time_known;

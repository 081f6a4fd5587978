ALTER TABLE jobs DROP COLUMN app_seconds;

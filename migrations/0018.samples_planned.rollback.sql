ALTER TABLE jobs DROP COLUMN samples_planned;

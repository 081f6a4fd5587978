DROP TABLE programs;
ALTER TABLE jobs DROP COLUMN program;

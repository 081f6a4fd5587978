ALTER TABLE jobs DROP COLUMN keeps_steps;

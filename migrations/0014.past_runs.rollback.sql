DROP INDEX jobs_of_user;
DROP INDEX jobs_of_account;
DROP INDEX jobs_of_name;
DROP INDEX jobs_of_workload;
ALTER TABLE jobs DROP COLUMN account;

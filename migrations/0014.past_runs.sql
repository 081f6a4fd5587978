-- How long jobs ran says how long the next ones will: by user and workload, user and job name,
-- user, or account.

ALTER TABLE jobs ADD COLUMN account text NOT NULL DEFAULT '';

CREATE INDEX jobs_of_workload ON jobs (user_name, workload, ended) WHERE ended IS NOT NULL;

CREATE INDEX jobs_of_name ON jobs (user_name, name, ended) WHERE ended IS NOT NULL;

CREATE INDEX jobs_of_account ON jobs (account, ended) WHERE ended IS NOT NULL;

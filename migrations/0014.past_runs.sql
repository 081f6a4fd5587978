-- Jobs' run times predict those of the next ones: by user and workload, user and job name, user, or
-- account.

ALTER TABLE jobs ADD COLUMN account text NOT NULL DEFAULT '';

-- The newest runs are read at every tick, in the full order of the indexes, so that nothing is sorted.
CREATE INDEX jobs_of_workload ON jobs (user_name, workload, ended, id COLLATE "C", submit)
    WHERE ended IS NOT NULL;

CREATE INDEX jobs_of_name ON jobs (user_name, name, ended, id COLLATE "C", submit)
    WHERE ended IS NOT NULL;

CREATE INDEX jobs_of_user ON jobs (user_name, ended, id COLLATE "C", submit)
    WHERE ended IS NOT NULL;

CREATE INDEX jobs_of_account ON jobs (account, ended, id COLLATE "C", submit)
    WHERE ended IS NOT NULL;

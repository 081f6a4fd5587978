-- Whether the ranks of a job handle the signal of its script's --signal; NULL if it reported nothing.
-- Whether a job failed soon after a restart although it had run longer before.

ALTER TABLE jobs ADD COLUMN answers_signal boolean;
ALTER TABLE jobs ADD COLUMN failed_again boolean NOT NULL DEFAULT false;
CREATE INDEX jobs_failed_again ON jobs (user_name, workload) WHERE failed_again;

-- Each round queries which workloads ended in the grace of hops' own signal.

CREATE INDEX jobs_ended_by_signal ON jobs (user_name, workload) WHERE ended_by_signal;

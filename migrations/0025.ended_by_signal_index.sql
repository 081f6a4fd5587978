-- Which workloads ended in the grace of hops' own signal is asked in each round.

CREATE INDEX jobs_ended_by_signal ON jobs (user_name, workload) WHERE ended_by_signal;

DROP INDEX jobs_ended_by_signal;

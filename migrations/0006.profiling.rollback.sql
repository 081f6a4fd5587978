DROP TABLE profile_runs;

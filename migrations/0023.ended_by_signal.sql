-- Whether a job ended in the grace of hops' own signal: its run time is not that of a whole run.

ALTER TABLE jobs ADD COLUMN ended_by_signal boolean NOT NULL DEFAULT false;

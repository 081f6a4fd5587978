-- The profiling queue: each row is a run on one GPU that measures a workload on a type.

CREATE TABLE profile_runs (
    job text NOT NULL,
    run integer NOT NULL,
    workload text NOT NULL,
    gpu_type text NOT NULL,
    node text NOT NULL,
    begin double precision NOT NULL,
    ended double precision,
    closed boolean NOT NULL,
    failure text NOT NULL,
    PRIMARY KEY (job, begin)
);

CREATE INDEX profile_runs_begin ON profile_runs (begin);

CREATE INDEX profile_runs_open ON profile_runs (job) WHERE NOT closed;

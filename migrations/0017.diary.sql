-- A shadow's diary: what each job asked for, and when and where hops would have started it first.

CREATE TABLE diary (
    job text NOT NULL,
    submit double precision NOT NULL,
    gpus integer NOT NULL,
    gpu_type text NOT NULL,
    time_limit_seconds double precision,
    planned double precision,
    nodes jsonb NOT NULL,
    PRIMARY KEY (job, submit)
);

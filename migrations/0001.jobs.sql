-- Jobs and where they ran. Times are seconds since the epoch, as hopsd computes with them: a
-- timestamptz keeps only whole microseconds, so it would not return exactly what was written.

CREATE TABLE jobs (
    id text NOT NULL,
    submit double precision NOT NULL,
    user_name text NOT NULL,
    name text NOT NULL,
    comment text NOT NULL,
    workload text NOT NULL,
    seen double precision NOT NULL,
    state text NOT NULL,
    wait_seconds double precision NOT NULL,
    run_seconds double precision NOT NULL,
    run_seconds_by_type jsonb NOT NULL,
    attained_gpu_seconds double precision NOT NULL,
    restarts integer NOT NULL,
    samples_done double precision NOT NULL,
    restart_seconds double precision NOT NULL,
    allocation jsonb NOT NULL,
    allocation_since double precision,
    profiling boolean NOT NULL,
    age_seconds double precision,
    ended double precision,
    released boolean NOT NULL,
    -- Slurm's job ids wrap around.
    PRIMARY KEY (id, submit)
);

CREATE UNIQUE INDEX jobs_open ON jobs (id) WHERE ended IS NULL;

CREATE INDEX jobs_ended ON jobs (ended) WHERE ended IS NOT NULL;

CREATE TABLE placements (
    job text NOT NULL,
    submit double precision NOT NULL,
    started double precision NOT NULL,
    ended double precision,
    nodes jsonb NOT NULL,
    profiling boolean NOT NULL,
    PRIMARY KEY (job, submit, started)
);

COMMENT ON COLUMN placements.nodes IS 'GPUs by node, such as {"n0": 2, "n2": 4}';

CREATE INDEX placements_open ON placements (job) WHERE ended IS NULL;

CREATE INDEX placements_ended ON placements (ended) WHERE ended IS NOT NULL;

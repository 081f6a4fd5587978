-- The theory layer: how long the parts of iterations took by processes' measurements, the basic
-- times fitted to them, and the bandwidths that calibration measured.

CREATE TABLE phases (
    workload text NOT NULL,
    gpu_type text NOT NULL,
    job text NOT NULL,
    run integer NOT NULL,
    node text NOT NULL,
    rank integer NOT NULL,
    pid bigint NOT NULL,
    world integer NOT NULL,
    at double precision NOT NULL,
    phases jsonb NOT NULL,
    -- A process reports its counts since its start, so its last report includes all earlier ones.
    PRIMARY KEY (workload, gpu_type, job, run, node, rank, pid)
);

CREATE INDEX phases_at ON phases (at);

CREATE TABLE theory (
    workload text NOT NULL,
    gpu_type text NOT NULL,
    inference boolean NOT NULL,
    pattern integer NOT NULL,
    batch_size double precision NOT NULL,
    params double precision NOT NULL,
    t_f double precision NOT NULL,
    t_b double precision NOT NULL,
    t_u double precision NOT NULL,
    p_cache double precision NOT NULL,
    mu_cache double precision NOT NULL,
    sigma_cache double precision NOT NULL,
    mu_load double precision NOT NULL,
    sigma_load double precision NOT NULL,
    w_cache double precision NOT NULL,
    w_load double precision NOT NULL,
    records integer NOT NULL,
    iterations bigint NOT NULL,
    at double precision NOT NULL,
    PRIMARY KEY (workload, gpu_type)
);

CREATE TABLE bandwidth (
    gpu_type text PRIMARY KEY,
    b_link double precision NOT NULL,
    b_net double precision NOT NULL,
    at double precision NOT NULL
);

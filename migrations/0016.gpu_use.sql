-- How the cluster's GPUs were used, in GPU-seconds by hour and type; updated at every reading.

CREATE TABLE gpu_use (
    hour double precision NOT NULL,
    gpu_type text NOT NULL,
    hops double precision NOT NULL,
    plain double precision NOT NULL,
    fragmented double precision NOT NULL,
    idle double precision NOT NULL,
    down double precision NOT NULL,
    PRIMARY KEY (hour, gpu_type)
);

COMMENT ON COLUMN gpu_use.fragmented IS 'idle while a job waited';

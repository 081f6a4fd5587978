-- What jobs reported: samples per second per GPU. A report that is read again after a crash is
-- the same row.

CREATE TABLE throughput (
    workload text NOT NULL,
    gpu_type text NOT NULL,
    node text NOT NULL,
    gpus integer NOT NULL,
    nodes integer NOT NULL,
    at double precision NOT NULL,
    per_gpu double precision NOT NULL,
    PRIMARY KEY (workload, gpu_type, node, gpus, nodes, at, per_gpu)
);

CREATE INDEX throughput_at ON throughput (at);

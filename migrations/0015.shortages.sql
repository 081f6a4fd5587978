-- GPU types on which a user's workload ran out of memory, with the largest GPU count at which it did.

CREATE TABLE shortages (
    "user" text NOT NULL,
    workload text NOT NULL,
    gpu_type text NOT NULL,
    gpus integer NOT NULL CHECK (gpus > 0),
    at double precision NOT NULL,
    PRIMARY KEY ("user", workload, gpu_type)
);

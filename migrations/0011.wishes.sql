-- What operators asked for and is not done yet: jobs to give back to plain Slurm, none: all held.

CREATE TABLE wishes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at double precision NOT NULL,
    uid bigint NOT NULL,
    jobs text[] NOT NULL
);

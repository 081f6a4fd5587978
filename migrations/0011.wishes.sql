-- Operators' requests that are not fulfilled yet: jobs to give back to plain Slurm; empty: all held.

CREATE TABLE wishes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at double precision NOT NULL,
    uid bigint NOT NULL,
    jobs text[] NOT NULL
);

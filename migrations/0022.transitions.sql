-- Steps of finished plans that are still under way: a grace, a requeue, a start that Slurm has not
-- answered. Written after each poll, so that a new hopsd continues where the last one stopped.

CREATE TABLE transitions (
    position integer PRIMARY KEY,
    job text NOT NULL,
    transition jsonb NOT NULL
);

-- Steps of finished plans that are still under way: a grace, a requeue, a start that Slurm has not
-- answered. Written after each look, so that a hopsd that starts goes on where the last one was.

CREATE TABLE transitions (
    position integer PRIMARY KEY,
    job text NOT NULL,
    transition jsonb NOT NULL
);

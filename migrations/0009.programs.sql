-- The program that a job trains with: a hash of the training script that its batch script calls.

ALTER TABLE jobs ADD COLUMN program text NOT NULL DEFAULT '';

-- The program that the last job of each batch script trained with.
CREATE TABLE programs (
    script text PRIMARY KEY,
    program text NOT NULL,
    at double precision NOT NULL
);

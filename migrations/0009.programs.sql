-- What jobs train with: a hash of the training script, which a batch script may only call.

ALTER TABLE jobs ADD COLUMN program text NOT NULL DEFAULT '';

-- What the last job of each batch script trained with.
CREATE TABLE programs (
    script text PRIMARY KEY,
    program text NOT NULL,
    at double precision NOT NULL
);

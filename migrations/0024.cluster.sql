-- The one cluster whose jobs this database has: on another, the same numbers mean other jobs.

CREATE TABLE cluster (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    name text NOT NULL
);

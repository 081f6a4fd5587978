-- The one cluster whose jobs this database has: their numbers mean other jobs on another.

CREATE TABLE cluster (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    name text NOT NULL
);

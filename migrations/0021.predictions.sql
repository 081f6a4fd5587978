-- What predictions of starts and ends have learnt from actual ones, in one row.

CREATE TABLE predictions (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    state jsonb NOT NULL
);

-- What hopsd noticed, and what operators set.

CREATE TABLE events (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at double precision NOT NULL,
    kind text NOT NULL,
    job text,
    text text NOT NULL
);

CREATE INDEX events_at ON events (at);

CREATE INDEX events_job ON events (job) WHERE job IS NOT NULL;

CREATE TABLE control (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    paused boolean NOT NULL DEFAULT false,
    by_whom text NOT NULL DEFAULT '',
    since double precision
);

INSERT INTO control DEFAULT VALUES;

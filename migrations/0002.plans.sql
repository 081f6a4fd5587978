-- Rounds, their plans, each plan's steps (written before it is applied) and outcomes (after).

CREATE TABLE rounds (
    started double precision PRIMARY KEY,
    ends double precision NOT NULL
);

CREATE TABLE plans (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    round double precision NOT NULL REFERENCES rounds ON DELETE CASCADE,
    round_end double precision NOT NULL,
    first boolean NOT NULL,
    made double precision NOT NULL,
    finished double precision,
    plan jsonb NOT NULL
);

CREATE INDEX plans_round ON plans (round);

CREATE INDEX plans_unfinished ON plans (id) WHERE finished IS NULL;

CREATE TABLE steps (
    plan bigint NOT NULL REFERENCES plans ON DELETE CASCADE,
    position integer NOT NULL,
    job text NOT NULL,
    kind text NOT NULL,
    step jsonb NOT NULL,
    PRIMARY KEY (plan, position)
);

CREATE INDEX steps_job ON steps (job);

CREATE TABLE outcomes (
    plan bigint NOT NULL REFERENCES plans ON DELETE CASCADE,
    position integer NOT NULL,
    job text NOT NULL,
    kind text NOT NULL,
    status text NOT NULL,
    outcome jsonb NOT NULL,
    PRIMARY KEY (plan, position)
);

CREATE INDEX outcomes_job ON outcomes (job);

CREATE TABLE reasons (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job text NOT NULL,
    since double precision NOT NULL,
    until double precision,
    code text NOT NULL,
    text text NOT NULL
);

CREATE INDEX reasons_job ON reasons (job);

CREATE UNIQUE INDEX reasons_open ON reasons (job) WHERE until IS NULL;

CREATE INDEX reasons_until ON reasons (until) WHERE until IS NOT NULL;

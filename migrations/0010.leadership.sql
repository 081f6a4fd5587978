-- Each hopsd that comes to lead takes the next number; what an earlier one still writes is refused.

CREATE TABLE leadership (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    epoch bigint NOT NULL DEFAULT 0
);

INSERT INTO leadership DEFAULT VALUES;

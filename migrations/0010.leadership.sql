-- Each hopsd that becomes the leader takes the next number; late writes of an earlier one are refused.

CREATE TABLE leadership (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    epoch bigint NOT NULL DEFAULT 0
);

INSERT INTO leadership DEFAULT VALUES;

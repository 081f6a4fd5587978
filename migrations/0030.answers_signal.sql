-- Whether the ranks of a job handle the signal of its script's --signal; NULL: it reported nothing.

ALTER TABLE jobs ADD COLUMN answers_signal boolean;

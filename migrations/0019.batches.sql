-- Samples per iteration and GPU, 0 if unknown: speeds at another batch size count less.

ALTER TABLE throughput ADD COLUMN batch double precision NOT NULL DEFAULT 0;

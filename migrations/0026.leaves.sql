-- On how many leaf switches a speed was measured, and how fast several of them are connected.

ALTER TABLE throughput ADD COLUMN leaves integer NOT NULL DEFAULT 1;
ALTER TABLE bandwidth ADD COLUMN b_across double precision NOT NULL DEFAULT 0;

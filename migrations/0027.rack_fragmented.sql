-- The part of the fragmented GPU-seconds on racks that no waiting rack-bound job could use.

ALTER TABLE gpu_use ADD COLUMN rack_fragmented double precision NOT NULL DEFAULT 0;

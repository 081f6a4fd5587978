-- The part of the fragmented GPU-seconds on racks of use to no waiting rack-bound job.

ALTER TABLE gpu_use ADD COLUMN rack_fragmented double precision NOT NULL DEFAULT 0;

ALTER TABLE gpu_use DROP COLUMN rack_fragmented;

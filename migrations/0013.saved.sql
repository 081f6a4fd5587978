-- Whether a job was seen to save its work; null: it reported nothing.

ALTER TABLE jobs ADD COLUMN saved boolean;

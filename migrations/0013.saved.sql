-- Whether a job was seen to save its work; NULL if it reported nothing.

ALTER TABLE jobs ADD COLUMN saved boolean;

-- What each user wants to be told by mail, as `hopsctl notify` set it. Without a row: what they asked
-- Slurm for by sbatch --mail-type.

CREATE TABLE mail_kinds (
    user_name text PRIMARY KEY,
    kinds jsonb NOT NULL
);

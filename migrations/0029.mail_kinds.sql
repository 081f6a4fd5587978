-- The mails that each user wants, as set by `hopsctl notify`. Without a row, those that they asked
-- Slurm for by sbatch --mail-type.

CREATE TABLE mail_kinds (
    user_name text PRIMARY KEY,
    kinds jsonb NOT NULL
);

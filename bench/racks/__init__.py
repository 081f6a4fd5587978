"""Plans of jobs that are bound to racks, beside a best fit as Slurm's."""

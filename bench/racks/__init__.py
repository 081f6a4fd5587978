"""Plans of rack-bound jobs, compared with a best fit like Slurm's."""

"""Compare plans of rack-bound jobs with a best fit like Slurm's."""

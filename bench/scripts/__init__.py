"""Other people's sbatch scripts, on plain Slurm and with hops' comment, side by side."""

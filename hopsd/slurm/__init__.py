"""All code that talks to Slurm."""

"""Small questions to Slurm beside the readings: counters, its clock, processor time."""

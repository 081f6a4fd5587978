"""Solvers for the integer program of a plan. PuLP and CBC are used here and nowhere else."""

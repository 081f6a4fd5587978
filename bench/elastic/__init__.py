"""Trainings that stop and move between numbers of ranks, compared with the unbroken run."""

"""Restart and switch times of trainings: ``python -m bench.switch``."""

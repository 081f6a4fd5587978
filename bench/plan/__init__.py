"""Measure how good and how fast plans are, from 512 to 100,000 GPUs: ``python -m bench.plan``."""

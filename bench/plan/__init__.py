"""How good and how fast plans are, from 512 to 10,000 GPUs: ``python -m bench.plan``."""

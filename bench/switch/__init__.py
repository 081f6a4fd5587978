"""How long a training takes to get going again: ``python -m bench.switch``."""

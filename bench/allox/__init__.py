"""AlloX's experiments (its section 5) in the simulator: ``python -m bench.allox``."""

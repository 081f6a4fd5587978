"""The experiments of the paper's section 4 in the simulator: ``python -m bench.paper``."""

"""The experiments of the Themis paper's section 6 in the simulator: ``python -m bench.themis``."""

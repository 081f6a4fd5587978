"""Starts the ranks of a training as torchrun does, but imports PyTorch once and forks.

If there is only one rank, the launcher becomes it. Use ``python -m hops_profiler.launch train.py``,
or ``hops-run train.py``, inside or outside of a job.
"""

"""Starts the ranks of a training as torchrun does, but imports PyTorch once and forks.

The launcher itself becomes a single rank.

``python -m hops_profiler.launch train.py``, or ``hops-run train.py``, inside or outside of a job.
"""

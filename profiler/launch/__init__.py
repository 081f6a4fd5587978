"""Starts the ranks of a training as torchrun does, but imports PyTorch once and forks.

A single rank is the launcher itself.

``python -m hops_profiler.launch train.py``, or ``hops-run train.py``, inside or outside of a job.
"""

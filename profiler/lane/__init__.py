"""Runs many trainings of one user on the GPUs of one job, in turns (Hare, sections 4 and 6).

Use ``hops-lane trials.txt`` or ``python -m hops_profiler.lane trials.txt``, with one command per
line. The lane forks an executor for each GPU, an executor forks workers, and a worker runs one
trial as its command would; after an optimizer step it may have to wait while others use the GPU.
"""

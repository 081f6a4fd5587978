"""Checkpoints that cost a GPU little time: to memory first, to the file system in the background.

    checkpoint = hops_profiler.Checkpoint("run.pt", lambda: {"model": model.state_dict(), ...})
    state = checkpoint.load()      # None in the first run
    checkpoint.step()              # after each iteration

A job's GPUs are free once its processes have ended, so none of them can go on writing. The node's
epilog writes what they leave in the node's memory (``slurm_plugin/save.sh``).
"""

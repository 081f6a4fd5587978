"""Checkpoints that cost little GPU time: to memory first, to the file system in the background.

    checkpoint = hops_profiler.Checkpoint("run.pt", lambda: {"model": model.state_dict(), ...})
    state = checkpoint.load()      # None in the first run
    checkpoint.step()              # after each iteration

A job's GPUs are free only when its processes have ended, so none can go on writing. The node's
epilog writes what they leave in the node's memory (``slurm_plugin/save.sh``).
"""

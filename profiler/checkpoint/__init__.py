"""Checkpoints that cost a GPU little time: to memory first, to the file system in the background.

    kept = hops_profiler.Checkpoint("run.pt", lambda: {"model": model.state_dict(), ...})
    state = kept.load()      # None in the first run
    kept.step()              # after each iteration

A job gives its GPUs back when its processes have ended, so nothing in it can go on writing. What
they leave in the node's memory, the node's epilog writes (``slurm_plugin/save.sh``).
"""

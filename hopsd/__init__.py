"""hops: places deep learning jobs on Slurm clusters as the Hops paper (SoCC 2024) describes."""

__version__ = "0.1.0"

"""The PyTorch timing plugin, installed as ``hops_profiler``. It imports nothing from hopsd.

It loads automatically through ``site/sitecustomize.py``; ``python -m hops_profiler train.py``,
``start()`` and ``with profile() as session:`` load it explicitly. It must run on Python 3.8 and
later, since it runs in the user's environment, not in the daemon's.
"""

from __future__ import annotations

TYPE_CHECKING = False  # not from typing, whose import takes longer than this whole package
if TYPE_CHECKING:
    from hops_profiler.checkpoint.sharded import ShardedCheckpoint
    from hops_profiler.checkpoint.single_file import Checkpoint
    from hops_profiler.data.elastic import ElasticLoader
    from hops_profiler.data.gradients import average_gradients
    from hops_profiler.lr_scaling import learning_rate, scaled
    from hops_profiler.startup import install as start
    from hops_profiler.timing.session import profile

__all__ = [
    "Checkpoint",
    "ElasticLoader",
    "ShardedCheckpoint",
    "average_gradients",
    "learning_rate",
    "profile",
    "scaled",
    "start",
]

_LOCATIONS = {
    "Checkpoint": ("checkpoint.single_file", "Checkpoint"),
    "ElasticLoader": ("data.elastic", "ElasticLoader"),
    "ShardedCheckpoint": ("checkpoint.sharded", "ShardedCheckpoint"),
    "average_gradients": ("data.gradients", "average_gradients"),
    "learning_rate": ("lr_scaling", "learning_rate"),
    "profile": ("timing.session", "profile"),
    "scaled": ("lr_scaling", "scaled"),
    "start": ("startup", "install"),
}


def __getattr__(name: str) -> object:
    """Import on first use, since every Python program of a job imports this package."""
    if name not in _LOCATIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib  # noqa: PLC0415

    module, attribute = _LOCATIONS[name]
    return getattr(importlib.import_module(f"hops_profiler.{module}"), attribute)

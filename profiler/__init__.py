"""The PyTorch timing plugin, installed as ``hops_profiler``. Imports nothing of hopsd.

It enters by itself through ``site/sitecustomize.py``; ``python -m hops_profiler train.py`` and
:func:`hops_profiler.start` are for those who like to say so. Written for Python 3.8 and later:
it runs in the user's environment, not in the daemon's.
"""

from __future__ import annotations

TYPE_CHECKING = False  # not from typing: importing that takes longer than all of this package
if TYPE_CHECKING:
    from hops_profiler.rates import learning_rate, scaled
    from hops_profiler.startup import install as start

__all__ = ["learning_rate", "scaled", "start"]


def __getattr__(name: str) -> object:
    """Import on use: every Python program of a job imports this package."""
    if name == "start":
        from hops_profiler.startup import install  # noqa: PLC0415

        return install
    if name in __all__:
        import importlib  # noqa: PLC0415

        return getattr(importlib.import_module("hops_profiler.rates"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Records whether this process's training has the same samples per step on any number of ranks.

This is separate from the loaders that ensure it, since the timing plugin asks in every process.
"""

from __future__ import annotations

_kept_names: set[str] = set()


def keeps_steps(name: str) -> None:
    """Note that the loader ``name`` keeps each step's samples."""
    _kept_names.add(name)


def steps_are_kept() -> bool:
    return bool(_kept_names)

"""Whether this process's training has the same samples a step on any number of ranks.

Apart from what keeps them, since the timing plugin asks in every process.
"""

from __future__ import annotations

_kept_names: set[str] = set()


def keeps_steps(name: str) -> None:
    """Note that ``name``, a loader, keeps them."""
    _kept_names.add(name)


def steps_are_kept() -> bool:
    return bool(_kept_names)

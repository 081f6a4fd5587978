"""The bounds of every number that a user, a job or Slurm tells: the one place where they stand.

``slurm_plugin/job_submit.lua`` has those of a comment once more, since Slurm's Lua reads no Python;
docs/users.md and docs/profiler.md tell them. ``tests/plugin/test_bounds.py`` holds all to each
other. They are wide: no honest job comes near them, and what lies within them neither overflows
nor vanishes in any sum, product or ratio of a plan.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bound:
    """From ``least`` to ``most``, both included."""

    least: float
    most: float

    def holds(self, value: float) -> bool:
        """Neither NaN nor an infinity is ever within."""
        return self.least <= value <= self.most

    def __str__(self) -> str:
        return f"{_shown(self.least)} to {_shown(self.most)}"


def _shown(value: float) -> str:
    """Whole numbers up to a million in digits, the others as ``1e18``."""
    if value == int(value) and abs(value) <= 1e6:
        return str(int(value))
    mantissa, _, exponent = f"{value:.6e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


COMMENT_CHARACTERS = Bound(0, 1024)

GPUS = Bound(1, 65_536)
"""Of a job's requirement, of a node."""

RANGE_COUNTS = Bound(2, 256)
"""How many counts a range may be cut to (``num``): about as many as a list has room for."""

SAMPLES = Bound(1e-3, 1e18)
"""Of a whole training. The largest published ones see 1e14 tokens."""

BATCH = Bound(1, 10_000_000)
"""Samples of an iteration on one GPU."""

LEARNING_RATE = Bound(1e-20, 1e6)

PHASE = Bound(1, 999)
"""Of an app."""

SPEED = Bound(1e-6, 1e9)
"""Samples per second per GPU: one in 11 days, or more than a GPU can count."""

ITERATIONS = Bound(0, 1e15)
"""Also ids and other counters: every one is exact in a double."""

PHASE_SECONDS = Bound(0, 86_400)
"""Of one part of one iteration."""

PARAMETERS = Bound(0, 1e14)
"""Of a model."""

EPOCH = Bound(0, 1e11)
"""A time of day in seconds: until the year 5138."""

DURATION = Bound(0, 1e10)
"""Seconds: 317 years."""

RESTARTS = Bound(0, 1e6)

REPORT_SECONDS_OLD = Bound(0, 366 * 86_400)
"""A report of an older one is no report of a job that Slurm knows."""

CLOCK_SKEW_SECONDS = 300.0
"""By which clocks of nodes may differ."""

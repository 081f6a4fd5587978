"""The accepted range of every number from a user, a job or Slurm, all in one place.

``slurm_plugin/job_submit.lua`` repeats the ranges of a comment's values, since Slurm's Lua cannot
read Python, and docs/users.md and docs/profiler.md list them; ``tests/plugin/test_bounds.py``
checks that all of them agree. The ranges are wide: no honest job comes near their ends, and values
within them neither overflow nor underflow in any sum, product or ratio of a plan.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ValueRange:
    """The range from ``minimum`` to ``maximum``, both included."""

    minimum: float
    maximum: float

    def holds(self, value: float) -> bool:
        """Whether ``value`` is within the bounds; NaN and infinities never are."""
        return self.minimum <= value <= self.maximum

    def __str__(self) -> str:
        return f"{_format(self.minimum)} to {_format(self.maximum)}"


def _format(value: float) -> str:
    """Format whole numbers up to a million in digits, all others like ``1e18``."""
    if value == int(value) and abs(value) <= 1e6:
        return str(int(value))
    mantissa, _, exponent = f"{value:.6e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


COMMENT_CHARACTERS = ValueRange(0, 1024)

OPTION_CHARACTERS = ValueRange(0, 8192)
"""The length of an sbatch option that is read at submission or stored: 1,024 names of 7 letters."""

GPUS = ValueRange(1, 65_536)
"""GPUs in a job's requirement, or on a node."""

NODES = ValueRange(0, 65_536)
"""Nodes in a list that Slurm reports."""

NAMED_NODES = ValueRange(1, 1024)
"""Nodes in ``--nodelist``. The list is stored with each job, and Slurm no longer checks it once
hops places the job."""

RANGE_COUNTS = ValueRange(2, 256)
"""How many counts a range may yield (``num``): about as many as fit in a comment's list."""

SAMPLES = ValueRange(1e-3, 1e18)
"""Samples in a whole training run. The largest published ones see 1e14 tokens."""

BATCH = ValueRange(1, 10_000_000)
"""Samples per iteration on one GPU."""

LEARNING_RATE = ValueRange(1e-20, 1e6)

PHASE = ValueRange(1, 999)
"""The phase number of a job in its app."""

SPEED = ValueRange(1e-6, 1e9)
"""Samples per second per GPU: from one in 11 days to more than any GPU processes."""

ITERATIONS = ValueRange(0, 1e15)
"""Also for ids and other counters: every such integer is exact in a double."""

PHASE_SECONDS = ValueRange(0, 86_400)
"""The duration of one phase of one iteration."""

PARAMETERS = ValueRange(0, 1e14)
"""The parameters of a model."""

EPOCH = ValueRange(0, 1e11)
"""A point in time, in seconds since the epoch: until the year 5138."""

MOMENT = ValueRange(-1e11, 1e11)
"""A point in time in a file or a simulation, which may count from any origin."""

PRIORITY = ValueRange(-1e15, 1e15)
"""A priority given in a file."""

DURATION = ValueRange(0, 1e10)
"""Seconds: 317 years."""

RUN_SECONDS = ValueRange(1e-3, 1e10)
"""A job's run time in seconds; other numbers are divided by it."""

RATE = ValueRange(1e-12, 1e15)
"""A speed given in a file, or a factor that applies to one, in any unit."""

RESTARTS = ValueRange(0, 1e6)

REPORT_SECONDS_OLD = ValueRange(0, 366 * 86_400)
"""The age of a report: Slurm no longer knows the job of an older one."""

CLOCK_SKEW_SECONDS = 300.0
"""How far the clocks of nodes may differ."""

MAX_DIARY_ROWS = 5000
"""Jobs of a shadow's diary in one response of hopsd: 1.4 MiB, as measured by bench.report."""

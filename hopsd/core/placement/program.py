"""The integer program of a plan (eq. 11 to 13 of the paper)."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hopsd.core.placement.configurations import Configurations
from hopsd.model.arrays import Bools, Floats, Ints

# Far from the ends of a double, so that sums over a plan neither overflow nor vanish.
_SAFE_EXPONENT = 600.0


@dataclass(frozen=True, slots=True)
class Program:
    """The integer program: the most valuable choice of at most one column per job within
    ``capacity`` (rows,).

    ``gain`` (columns,) is G of eq. 11 times the restart factor; ``urgency`` (jobs,) is
    ``prior + bias``; ``weight`` (jobs,) is ``urgency^lam / exp(log_scale)``; ``value`` is weight
    times gain. A *choice* (jobs,) holds every job's column, -1 for none.
    """

    configurations: Configurations
    capacity: Ints
    urgency: Floats
    lam: float
    weight: Floats
    log_scale: float
    gain: Floats
    value: Floats

    def by_weight(self) -> Ints:
        """Jobs in descending weight; equal ones in queue order."""
        return np.argsort(-self.log_weight(), kind="stable")

    def log_weight(self) -> Floats:
        """Logarithms of the weights, which also distinguish those that underflow a double."""
        return self.lam * np.log(self.urgency)

    @property
    def idle(self) -> Ints:
        """The idle GPUs of every server, (servers,)."""
        return self.capacity[: len(self.configurations.pool)]

    def items(self, columns: Ints) -> Ints:
        """The items of the configurations' demands that ``columns`` take."""
        own = self.configurations
        shapes = own.shape[columns].astype(np.int64)
        return shapes if own.share is None else np.concatenate([shapes, own.share[columns]])

    def per_column(self, of_items: Floats) -> Floats:
        """The sum of ``of_items`` (items,) over the items of every column, (columns,)."""
        own = self.configurations
        found: Floats = of_items[own.shape]
        if own.share is not None:
            found += of_items[own.share]
        return found

    def gpus_on(self, column: int) -> list[tuple[int, int]]:
        """The servers of a column, and how many GPUs of each it makes unavailable to other jobs."""
        own = self.configurations
        taken = own.demands.of(int(own.shape[column]))
        return [(row, amount) for row, amount in taken if row < len(own.pool)]

    def taken(self, choice: Ints) -> Ints:
        """How much of every row ``choice`` takes."""
        items = self.items(choice[choice >= 0])
        return self.configurations.demands.total(items, len(self.capacity))

    def gpus(self, choice: Ints) -> int:
        """The number of GPUs that ``choice`` places."""
        shapes = self.configurations.shape[choice[choice >= 0]]
        return int(self.configurations.shapes.sizes()[shapes].sum())

    def fits(self, capacity: Ints) -> Bools:
        """Which columns fit into ``capacity`` (rows,)."""
        own, fit = self.configurations, self.configurations.demands.fit(capacity)
        fits: Bools = fit[own.shape]
        return fits if own.share is None else fits & fit[own.share]

    def feasible(self, choice: Ints) -> bool:
        """Whether every chosen column belongs to its job and no row is exceeded."""
        start = self.configurations.start
        chosen = choice >= 0
        own = (start[:-1] <= choice) & (choice < start[1:])
        return bool(np.all(own[chosen]) and np.all(self.taken(choice) <= self.capacity))

    def scaled_objective(self, choice: Ints) -> float:
        """Eq. 11 divided by ``exp(log_scale)``."""
        return math.fsum(self.value[choice[choice >= 0]])

    def unscaled(self, scaled: float) -> float:
        """A scaled objective or bound in the units of eq. 11, capped at the largest double."""
        if self.log_scale == 0.0 or scaled <= 0.0:
            return scaled
        exponent = math.log(scaled) + self.log_scale
        return math.exp(exponent) if exponent < math.log(sys.float_info.max) else sys.float_info.max


def build(
    configurations: Configurations,
    priorities: Sequence[float],
    lam: float,
    restart_share: Floats,
) -> Program:
    """The program of all jobs and their configurations, with ``priorities``.

    ``restart_share`` (jobs,): the share of a round left after the restart of a job that is moved;
    1 for a job that does not run or loses nothing.
    """
    urgency = _urgency(np.array(priorities, dtype=np.float64))
    weight, log_scale = _weights(urgency, lam)
    lengths = np.diff(configurations.start)
    filled = lengths > 0
    smallest = np.ones(configurations.jobs)
    if len(configurations):
        smallest[filled] = np.minimum.reduceat(
            configurations.throughput, configurations.start[:-1][filled]
        )
    gain = configurations.throughput / np.repeat(smallest, lengths)
    if np.any(restart_share < 1.0):
        stays = configurations.present[configurations.present >= 0]
        at_home = gain[stays]
        gain *= np.repeat(restart_share, lengths)
        gain[stays] = at_home
    value = gain * np.repeat(weight, lengths)
    return Program(
        configurations, configurations.capacity, urgency, lam, weight, log_scale, gain, value
    )


def program_of_gains(configurations: Configurations, weight: Floats, gain: Floats) -> Program:
    """A program where a column is worth ``gain`` (columns,) times its job's ``weight`` (jobs,),
    both above 0.
    """
    value = gain * np.repeat(weight, np.diff(configurations.start))
    return Program(configurations, configurations.capacity, weight, 1.0, weight, 0.0, gain, value)


def restrict(program: Program, jobs: Bools, capacity: Ints) -> tuple[Program, Ints]:
    """The program of some ``jobs`` within ``capacity``, and its columns' numbers in the original.

    Columns that exceed ``capacity`` are left out. Jobs keep their numbers; weights are rescaled, so
    that differences between light jobs count.
    """
    old = program.configurations
    keep = np.flatnonzero(program.fits(capacity) & np.repeat(jobs, np.diff(old.start)))
    columns = old.some(keep)
    start = columns.start
    log_weight = program.log_weight()
    top = float(log_weight[np.diff(start) > 0].max(initial=-np.inf))
    # Jobs left out may be heavier than a double can hold beside the others.
    weight = np.where(np.diff(start) > 0, np.exp(np.minimum(log_weight - top, 0.0)), 0.0)
    gain = program.gain[keep]
    value = gain * np.repeat(weight, np.diff(start))
    part = replace(
        program,
        configurations=columns,
        capacity=capacity,
        weight=weight,
        log_scale=top,
        gain=gain,
        value=value,
    )
    return part, keep


def drop_oversized(program: Program) -> tuple[Program, Ints]:
    """The program without columns that exceed its capacity, and the others' numbers in the
    original.

    Limits cause such columns: their gains count in the means, but no job can have them.
    """
    keep = np.flatnonzero(program.fits(program.capacity))
    if len(keep) == len(program.value):
        return program, keep
    columns = program.configurations.some(keep)
    return (
        replace(
            program, configurations=columns, gain=program.gain[keep], value=program.value[keep]
        ),
        keep,
    )


def _urgency(priorities: Floats) -> Floats:
    """``prior + bias``: all positive, whatever the priorities."""
    lowest = float(priorities.min(initial=np.inf))
    return priorities if lowest > 0.0 else priorities + (abs(lowest) + 0.01)


def _weights(urgency: Floats, lam: float) -> tuple[Floats, float]:
    """``urgency^lam`` as factors and the logarithm of their common scale.

    The scale is 1 (logarithm 0) unless a weight would come near the ends of a double.
    """
    if not len(urgency):
        return np.zeros(0), 0.0
    exponents = lam * np.log(urgency)
    top = float(exponents.max())
    if abs(top) < _SAFE_EXPONENT:
        return urgency**lam, 0.0
    return np.exp(exponents - top), top

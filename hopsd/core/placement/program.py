"""The integer program of a plan (eq. 11 to 13 of the paper)."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from hopsd.core.placement.configurations import Configurations
from hopsd.core.placement.segments import Segments, UnwrittenSegments
from hopsd.model.arrays import Bools, Floats, Ints

# Far from the limits of a double, so that sums over a plan neither overflow nor vanish.
_SAFE_EXPONENT = 600.0
ALL = slice(None)
"""All columns."""


@dataclass(frozen=True, slots=True)
class Program:
    """The integer program: choose at most one column per job to maximise the total value.

    The choice must fit into ``capacity`` (rows,). ``urgency`` (jobs,) is ``prior + bias``;
    ``weight`` (jobs,) is ``urgency^lam / exp(log_scale)``; ``value`` (columns,) is weight times
    gain. The gain is ``base`` (columns,) divided by ``least`` (jobs,), which is G of eq. 11, times
    ``kept_share`` (jobs,), the share of a round left after a move. A *choice* (jobs,) has the
    column of each job, -1 for none.
    """

    configurations: Configurations
    capacity: Ints
    urgency: Floats
    lam: float
    weight: Floats
    log_scale: float
    base: Floats
    least: Floats
    kept_share: Floats
    value: Floats

    def gain(self, columns: Ints) -> Floats:
        """Return the gain of some columns."""
        return self.gain_of(columns, self.configurations.jobs_of(columns))

    def gain_of(self, columns: Ints, job: Ints) -> Floats:
        """Return the gain of columns whose jobs are known."""
        is_move = columns != self.configurations.present[job]
        gain: Floats = self.base[columns] / self.least[job]
        gain[is_move] *= self.kept_share[job[is_move]]
        return gain

    def by_weight(self) -> Ints:
        """Return the jobs in descending order of weight; equal ones in queue order."""
        return np.argsort(-self.log_weight(), kind="stable")

    def log_weight(self) -> Floats:
        """Return the logarithms of the weights, which also distinguish weights that underflow."""
        return self.lam * np.log(self.urgency)

    @property
    def idle(self) -> Ints:
        """The idle GPUs of every server, (servers,)."""
        return self.capacity[: len(self.configurations.pool)]

    def items(self, columns: Ints) -> Ints:
        """Return the items of the configurations' demands that ``columns`` take."""
        configurations = self.configurations
        shapes = configurations.shape[columns].astype(np.int64)
        return (
            shapes
            if configurations.share is None
            else np.concatenate([shapes, configurations.share[columns]])
        )

    def per_column(self, item_values: Floats, columns: slice | Ints = ALL) -> Floats:
        """Return the sum of ``item_values`` (items,) over the items of each column, (columns,)."""
        configurations = self.configurations
        values: Floats = configurations.shape_values(item_values, columns)
        if configurations.share is not None:
            values += item_values[configurations.share[columns]]
        return values

    def most(self) -> Floats:
        """Return the value of each job's most valuable column, (jobs,); ``-inf`` without any."""
        maxima, parts = np.full(self.configurations.jobs, -np.inf), segment_values(self)
        has_column = np.diff(self.configurations.start) > 0
        if has_column.any():
            first = self.configurations.start[:-1][has_column]
            maxima[has_column] = (
                np.maximum.reduceat(self.value, first)
                if parts is None
                else np.maximum.reduceat(parts.most(), parts.segments.first_by_job())
            )
        return maxima

    def profit(self, cost: Floats, columns: slice | Ints) -> Floats:
        """Return the value of some columns minus the ``cost`` (items,) of their items."""
        profit: Floats = self.value[columns] - self.per_column(cost, columns)
        return profit

    def gpus_on(self, column: int) -> list[tuple[int, int]]:
        """Return a column's servers, and how many GPUs of each become unavailable to other jobs."""
        configurations = self.configurations
        amounts = configurations.demands.amounts_of(int(configurations.shape[column]))
        return [(row, amount) for row, amount in amounts if row < len(configurations.pool)]

    def usage(self, choice: Ints) -> Ints:
        """Return how much ``choice`` takes of each row."""
        items = self.items(choice[choice >= 0])
        return self.configurations.demands.total(items, len(self.capacity))

    def gpus(self, choice: Ints) -> int:
        """Return the number of GPUs that ``choice`` assigns."""
        shapes = self.configurations.shape[choice[choice >= 0]]
        return int(self.configurations.shapes.sizes()[shapes].sum())

    def fits(self, capacity: Ints) -> Bools:
        """Return which columns fit into ``capacity`` (rows,)."""
        configurations, fit = self.configurations, self.configurations.demands.fit(capacity)
        fits: Bools = configurations.shape_values(fit, ALL)
        return fits if configurations.share is None else fits & fit[configurations.share[ALL]]

    def fitting(self, jobs: Bools, capacity: Ints) -> Ints:
        """Return the columns of some ``jobs`` that fit into ``capacity`` (rows,), sorted."""
        segments = self.configurations.segments
        if segments is None:
            is_included = np.repeat(jobs, np.diff(self.configurations.start))
            return np.flatnonzero(self.fits(capacity) & is_included)
        fit = self.configurations.demands.fit(capacity)
        selection = (
            jobs[segments.job]
            if segments.share is None
            else jobs[segments.job] & fit[segments.share]
        )
        return segments.with_items(selection, fit)

    def feasible(self, choice: Ints) -> bool:
        """Whether every chosen column belongs to its job and no row is exceeded."""
        start = self.configurations.start
        selection = choice >= 0
        in_range = (start[:-1] <= choice) & (choice < start[1:])
        return bool(np.all(in_range[selection]) and np.all(self.usage(choice) <= self.capacity))

    def scaled_objective(self, choice: Ints) -> float:
        """Return eq. 11 divided by ``exp(log_scale)``."""
        return math.fsum(self.value[choice[choice >= 0]])

    def unscale(self, value: float) -> float:
        """Convert a scaled objective or bound to eq. 11's units, capped at the largest double."""
        if self.log_scale == 0.0 or value <= 0.0:
            return value
        exponent = math.log(value) + self.log_scale
        return math.exp(exponent) if exponent < math.log(sys.float_info.max) else sys.float_info.max


def build(
    configurations: Configurations,
    priorities: Sequence[float],
    lam: float,
    restart_share: Floats,
    min_counts: Floats | None = None,
) -> Program:
    """Build the program of all jobs and their configurations, with ``priorities``.

    ``restart_share`` (jobs,): the share of a round left after the restart of a job that is moved;
    1 for a job that does not run or loses nothing. ``min_counts`` (jobs,): the throughput whose
    gain is 1, by default the smallest.
    """
    urgency = _urgency(np.array(priorities, dtype=np.float64))
    weight, log_scale = _weights(urgency, lam)
    min_counts = _smallest(configurations) if min_counts is None else min_counts
    program = Program(
        configurations,
        configurations.capacity,
        urgency,
        lam,
        weight,
        log_scale,
        configurations.throughput,
        min_counts,
        restart_share,
        np.empty(0 if configurations.segments else len(configurations)),
    )
    if configurations.segments is not None:
        return replace(program, value=_unwritten_values(program))
    for first, last in configurations.slices():
        job = configurations.jobs_between(first, last)
        program.value[first:last] = program.gain_of(np.arange(first, last), job) * weight[job]
    return program


def _smallest(configurations: Configurations) -> Floats:
    """Return the smallest throughput of each job, (jobs,); 1 for a job without columns."""
    smallest, segments = np.ones(configurations.jobs), configurations.segments
    has_column = np.diff(configurations.start) > 0
    if not has_column.any():
        return smallest
    if segments is None:
        first = configurations.start[:-1][has_column]
        smallest[has_column] = np.minimum.reduceat(configurations.throughput, first)
    else:
        minima = segments.per_gpu * segments.extremes()[0] * segments.size
        smallest[has_column] = np.minimum.reduceat(minima, segments.first_by_job())
    for sets in configurations.families:
        if not sets.complete:
            np.minimum.at(smallest, sets.jobs, sets.slowest)
    return smallest


@dataclass(frozen=True, slots=True)
class SegmentValues:
    """The values of columns that are not written out.

    A value is ``factor`` (segments,) times slowness, except for the columns ``stay`` (sorted),
    whose jobs do not move: theirs is ``worth``.
    """

    segments: Segments
    factor: Floats
    stay: Ints
    worth: Floats

    def values_of(self, columns: slice | Ints) -> Floats:
        """Return the values of some columns."""
        values, spread_out = self.segments.slowness_of(columns)
        values *= spread_out(self.factor)
        if isinstance(columns, slice):
            low, high = np.searchsorted(self.stay, [columns.start, columns.stop])
            values[self.stay[low:high] - columns.start] = self.worth[low:high]
        elif len(self.stay):
            positions = np.minimum(np.searchsorted(self.stay, columns), len(self.stay) - 1)
            matches = self.stay[positions] == columns
            values[matches] = self.worth[positions[matches]]
        return values

    def most(self) -> Floats:
        """Return the largest value of each segment, (segments,)."""
        maxima: Floats = self.factor * self.segments.extremes()[2]
        np.maximum.at(maxima, self.segments.find(self.stay), self.worth)
        return maxima

    def mean(self) -> Floats:
        """Return the mean value of each segment if its job does not stay, (segments,)."""
        mean: Floats = self.factor * self.segments.extremes()[1]
        return mean


@dataclass(frozen=True, slots=True)
class UnwrittenValues(UnwrittenSegments):
    """Values that are not written out, and the ``parts`` from which they are computed."""

    parts: SegmentValues

    def max(self, initial: float = -np.inf) -> Any:
        """Return the largest value."""
        return self.parts.most().max(initial=initial)


def segment_values(program: Program) -> SegmentValues | None:
    """Return the parts of values that are not written out; None if they are written out."""
    return program.value.parts if isinstance(program.value, UnwrittenValues) else None


def _unwritten_values(program: Program) -> Floats:
    """Return the values of columns that are not written out."""
    segments, present = program.configurations.segments, program.configurations.present
    if segments is None:
        raise ValueError("the columns are written out")
    stay = np.sort(present[present >= 0])
    factor = segments.per_gpu * segments.size / program.least[segments.job]
    factor *= program.kept_share[segments.job] * program.weight[segments.job]
    jobs = program.configurations.jobs_of(stay)
    worth = program.gain_of(stay, jobs) * program.weight[jobs]
    values = SegmentValues(segments, factor, stay, worth)
    return cast(Floats, UnwrittenValues(segments.columns, values.values_of, values))


def program_of_gains(configurations: Configurations, weight: Floats, gain: Floats) -> Program:
    """Build a program in which a column is worth ``gain`` (columns,) times ``weight`` (jobs,).

    Both must be above 0.
    """
    weights, log_scale = _weights(weight, 1.0)
    value = gain * np.repeat(weights, np.diff(configurations.start))
    unit_counts = np.ones(configurations.jobs)
    capacity = configurations.capacity
    return Program(
        configurations,
        capacity,
        weight,
        1.0,
        weights,
        log_scale,
        gain,
        unit_counts,
        unit_counts,
        value,
    )


def restrict(program: Program, jobs: Bools, capacity: Ints) -> tuple[Program, Ints]:
    """Return the program of some ``jobs`` within ``capacity``, and its columns' original numbers.

    Columns that exceed ``capacity`` are left out. Jobs keep their numbers; weights are rescaled, so
    that differences between light jobs count.
    """
    old = program.configurations
    keep = program.fitting(jobs, capacity)
    columns = old.select(keep)
    start = columns.start
    log_weight = program.log_weight()
    top = float(log_weight[np.diff(start) > 0].max(initial=-np.inf))
    # The weights of jobs left out may be too large for a double relative to the others.
    weight = np.where(np.diff(start) > 0, np.exp(np.minimum(log_weight - top, 0.0)), 0.0)
    part = replace(
        program,
        configurations=columns,
        capacity=capacity,
        weight=weight,
        log_scale=top,
        base=_base(program, columns, keep),
        value=np.zeros(len(keep)),
    )
    gain = part.gain(np.arange(len(keep)))
    return replace(part, value=gain * np.repeat(weight, np.diff(start))), keep


def drop_oversized(program: Program) -> tuple[Program, Ints | None]:
    """Return the program without columns that exceed its capacity, and the others' old numbers.

    The numbers are None if there are no such columns. Limits cause such columns: their gains count
    in the means, but no job can have them.
    """
    segments, shapes = program.configurations.segments, len(program.configurations.shapes)
    if segments is not None:
        fit = program.configurations.demands.fit(program.capacity)
        if fit[:shapes].all():
            return _drop_segments(program, segments, fit)
    fits = program.fits(program.capacity)
    if fits.all():
        return program, None
    keep = np.flatnonzero(fits)
    columns, value = program.configurations.select(keep), program.value[keep]
    base = _base(program, columns, keep)
    return replace(program, configurations=columns, base=base, value=value), keep


def restrict_to_jobs(program: Program, jobs: Bools) -> Program:
    """Return the program with the columns of only some ``jobs`` (jobs,), none written out."""
    segments = program.configurations.segments
    if segments is None:
        raise ValueError("the columns are written out")
    return _some_segments(program, segments, jobs[segments.job])[0]


def _drop_segments(program: Program, segments: Segments, fit: Bools) -> tuple[Program, Ints | None]:
    """Do :func:`drop_oversized` by segment, if only limits are exceeded. ``fit``: of all items."""
    if segments.share is None or fit[segments.share].all():
        return program, None
    return _some_segments(program, segments, fit[segments.share])


def _some_segments(program: Program, segments: Segments, selection: Bools) -> tuple[Program, Ints]:
    """Return the program with only the segments in ``selection``, and its columns' old numbers."""
    columns, keep = program.configurations.some_segments(segments, selection)
    part = replace(program, configurations=columns, base=columns.throughput)
    return replace(part, value=_unwritten_values(part)), keep


def _base(program: Program, columns: Configurations, keep: Ints) -> Floats:
    """Return the base of ``columns``, the kept ones; if the base is throughput, without a copy."""
    throughput = program.base is program.configurations.throughput
    return columns.throughput if throughput else program.base[keep]


def _urgency(priorities: Floats) -> Floats:
    """Return ``prior + bias``, which is positive whatever the priorities."""
    lowest = float(priorities.min(initial=np.inf))
    return priorities if lowest > 0.0 else priorities + (abs(lowest) + 0.01)


def _weights(urgency: Floats, lam: float) -> tuple[Floats, float]:
    """Return ``urgency^lam`` as factors and the logarithm of their common scale.

    The scale is 1 (logarithm 0) unless a weight would come near the limits of a double.
    """
    if not len(urgency):
        return np.zeros(0), 0.0
    exponents = lam * np.log(urgency)
    top = float(exponents.max())
    if abs(top) < _SAFE_EXPONENT:
        return urgency**lam, 0.0
    return np.exp(exponents - top), top

"""How much slower a training is on servers of several leaf switches than below one.

Measured shapes say so where a workload ran on both. Otherwise its basic times do, with a bandwidth
between servers of different leaves that was calibrated, or that other workloads' measured
slowdowns imply, as for the other bandwidths (:mod:`hopsd.core.speed.inferred`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import exp, log, sqrt
from statistics import median_low

from hopsd.core.speed.throughput import (
    BasicTimes,
    IterationModel,
    interpolate,
    iteration_seconds,
)
from hopsd.model.ids import UserName, WorkloadName
from hopsd.model.job import Shape
from hopsd.model.knowledge import ThroughputRecord

SLOWEST, FASTEST = 0.05, 1.25
"""Bounds of a factor: what is measured beyond them has other causes."""
SCATTER = 0.02
"""A smaller slowdown than this shows no bandwidth."""
STEPS = 40
"""Bisections of the logarithm."""

AcrossLeaves = Mapping[int, float]
"""Factors by number of leaves, with that of one; empty: nothing is known."""


def measured_across(records: Iterable[ThroughputRecord], min_records: int) -> dict[int, float]:
    """Factors by number of leaves of a workload, from shapes that a user ran on one leaf and on
    more, with ``min_records`` each: the geometric mean over shapes, the median over users.
    """
    speeds: dict[tuple[UserName, object], dict[int, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for record in records:
        if record.nodes > 1:
            shape = record.gpu_type, record.gpus, record.nodes, record.batch
            speeds[record.user, shape][record.leaves].append(record.per_gpu)
    ratios: dict[int, dict[UserName, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (user, _), by_leaves in speeds.items():
        enough = {n: median_low(s) for n, s in by_leaves.items() if len(s) >= min_records}
        for leaves, speed in enough.items():
            if leaves > 1 and 1 in enough:
                ratios[leaves][user].append(log(speed / enough[1]))
    return {
        leaves: clamp_factor(exp(median_low([sum(r) / len(r) for r in by_user.values()])))
        for leaves, by_user in sorted(ratios.items())
    }


def clamp_factor(factor: float) -> float:
    """A factor within bounds."""
    return min(FASTEST, max(SLOWEST, factor))


def theory_across(times: BasicTimes, b_across: float, shape: Shape, model: IterationModel) -> float:
    """The factor that basic times predict for a shape, given parameters per second across leaves;
    never above 1.
    """
    below_one = iteration_seconds(times, *shape, model)
    return clamp_factor(
        min(1.0, below_one / iteration_seconds(replace(times, b_net=b_across), *shape, model))
    )


def implied_across(
    times: BasicTimes, factor: float, shape: Shape, model: IterationModel
) -> float | None:
    """Parameters per second across leaves with which basic times predict ``factor``; None: it
    shows none.
    """
    if factor > 1.0 - SCATTER or theory_across(times, times.b_net, shape, model) <= factor:
        return None
    low, high = times.b_net * 1e-4, times.b_net
    if theory_across(times, low, shape, model) > factor:
        return None
    for _ in range(STEPS):
        middle = sqrt(low * high)
        faster = theory_across(times, middle, shape, model) > factor
        low, high = (low, middle) if faster else (middle, high)
    return sqrt(low * high)


def below_one_leaf(
    records: Sequence[ThroughputRecord], leaf_factors: Mapping[WorkloadName, AcrossLeaves]
) -> tuple[ThroughputRecord, ...]:
    """The records as they would be below one leaf switch, where that is known."""
    if not any(leaf_factors.values()):
        return tuple(records)
    return tuple(
        replace(r, per_gpu=r.per_gpu / interpolate(leaf_factors[r.workload], r.leaves))
        if r.leaves > 1 and leaf_factors.get(r.workload)
        else r
        for r in records
    )

"""How much slower a training is on servers of several leaf switches than below a single one.

If a workload ran on both, measured shapes show it. Otherwise it follows from the workload's basic
times, with a bandwidth between servers of different leaves that was calibrated, or that is implied
by the measured slowdowns of other workloads, as for the other bandwidths
(:mod:`hopsd.core.speed.inferred`).
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
"""Bounds of a factor: measurements beyond them have other causes."""
SCATTER = 0.02
"""A smaller slowdown than this says nothing about the bandwidth."""
STEPS = 40
"""Number of bisections of the logarithm."""

AcrossLeaves = Mapping[int, float]
"""Factors by number of leaves, including one leaf; empty if nothing is known."""


def measured_across(records: Iterable[ThroughputRecord], min_records: int) -> dict[int, float]:
    """Return a workload's factors by number of leaves, from shapes run on one leaf and on more.

    Each shape needs ``min_records`` of the same user on both. The result is the geometric mean over
    shapes, and the median over users.
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
    """Clamp a factor to its bounds."""
    return min(FASTEST, max(SLOWEST, factor))


def theory_across(times: BasicTimes, b_across: float, shape: Shape, model: IterationModel) -> float:
    """Return the factor that basic times predict for a shape; never above 1.

    ``b_across``: bandwidth between leaves in parameters per second.
    """
    below_one = iteration_seconds(times, *shape, model)
    return clamp_factor(
        min(1.0, below_one / iteration_seconds(replace(times, b_net=b_across), *shape, model))
    )


def implied_across(
    times: BasicTimes, factor: float, shape: Shape, model: IterationModel
) -> float | None:
    """Return the parameters per second across leaves with which basic times predict ``factor``.

    Returns None if the factor says nothing about the bandwidth.
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
    """Convert the records to the speeds expected below one leaf switch, where factors are known."""
    if not any(leaf_factors.values()):
        return tuple(records)
    return tuple(
        replace(r, per_gpu=r.per_gpu / interpolate(leaf_factors[r.workload], r.leaves))
        if r.leaves > 1 and leaf_factors.get(r.workload)
        else r
        for r in records
    )

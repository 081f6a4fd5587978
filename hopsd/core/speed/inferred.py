"""Bandwidths implied by other workloads' measured shapes, for types that were not calibrated.

Gradients of all trainings travel over the same links, so the slowdown of one spread training
predicts that of another, given its number of parameters (eq. 2).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from math import sqrt
from statistics import median_low

from hopsd.core.speed.batches import is_near
from hopsd.core.speed.estimator import EstimatorSettings
from hopsd.core.speed.layers import MeasuredSpeed, by_workload
from hopsd.core.speed.theory import LINK, credible, times_without_communication
from hopsd.core.speed.throughput import BasicTimes, IterationModel, iteration_seconds
from hopsd.model.ids import GpuType, UserName, WorkloadName
from hopsd.model.isolation import find_failing_items
from hopsd.model.job import Shape
from hopsd.model.knowledge import Bandwidth, Knowledge, Theory

SLOWEST, FASTEST = 1e4, 1e13
"""Search range in parameters per second: 40 kB/s to 40 TB/s in float32."""

STEPS = 40
"""Number of bisections of the logarithm, for a relative error below 1e-10."""

MAX_SHAPES = 4
"""Number of shapes used of a workload: those with the most records."""

MAX_WORKLOADS = 64
"""Number of workloads used: the newest ones."""

OVERHEAD = 1.02
"""A smaller slowdown than this, relative to one GPU, is within the scatter and shows nothing."""


_Votes = dict[UserName, list[float]]


def with_implied_bandwidths(
    knowledge: Knowledge, settings: EstimatorSettings, now: float
) -> Knowledge:
    """Add the bandwidths that the workloads imply to ``knowledge``; skip workloads that raise."""
    bandwidths, _ = find_failing_items(
        informative(knowledge), lambda names: implied_bandwidths(knowledge, names, settings, now)
    )
    return replace(knowledge, implied=bandwidths)


def informative(knowledge: Knowledge) -> tuple[WorkloadName, ...]:
    """Return the newest workloads that were measured over several servers on uncalibrated types."""
    calibrated_types = {bandwidth.gpu_type for bandwidth in knowledge.bandwidth}
    spread = {
        r.workload for r in knowledge.records if r.nodes > 1 and r.gpu_type not in calibrated_types
    }
    newest: dict[WorkloadName, float] = {}
    for fit in knowledge.theory:
        if fit.workload in spread and not fit.inference and fit.params > 0:
            newest[fit.workload] = max(fit.at, newest.get(fit.workload, fit.at))
    return tuple(sorted(newest, key=lambda name: (-newest[name], name))[:MAX_WORKLOADS])


def implied_bandwidths(
    knowledge: Knowledge,
    workloads: Collection[WorkloadName],
    settings: EstimatorSettings,
    now: float,
) -> tuple[Bandwidth, ...]:
    """Return the bandwidths of uncalibrated types that the shapes of ``workloads`` imply.

    Each is the median over users of the median over the user's shapes. Types that were never
    measured over several servers are omitted: a server's links say nothing about the network. The
    reverse is possible, roughly: links count as :data:`LINK` times as fast as the network. The
    result is empty under ``paper_exact``.
    """
    if settings.model.paper_exact:
        return ()
    calibrated_types = {
        bandwidth.gpu_type for bandwidth in (*knowledge.bandwidth, *settings.bandwidth)
    }
    records = [record for record in knowledge.records if record.workload in workloads]
    users = {r.workload: r.user for r in sorted(records, key=lambda r: -r.at)}  # the earliest
    layers = by_workload(records, settings.half_life_seconds, now)
    votes: dict[GpuType, tuple[_Votes, _Votes]] = defaultdict(
        lambda: (defaultdict(list), defaultdict(list))
    )
    for fit in filter(credible, knowledge.theory):
        workload_layers = layers.get(fit.workload)
        if (
            workload_layers is None
            or fit.gpu_type in calibrated_types
            or fit.gpu_type not in workload_layers.type
        ):
            continue
        speeds = workload_layers.type[fit.gpu_type].answering(settings.min_records).shapes
        for shape, rate in _bandwidth_of_shapes(fit, speeds, settings.model):
            votes[fit.gpu_type][shape[1] > 1][users[fit.workload]].append(rate)
    bandwidths = []
    for gpu_type, (links, nets) in sorted(votes.items()):
        if nets:
            net = _median_of_medians(nets)
            bandwidths.append(
                Bandwidth(gpu_type, _median_of_medians(links) if links else LINK * net, net)
            )
    return tuple(bandwidths)


def _median_of_medians(votes: _Votes) -> float:
    """Return the rounded median; unrounded, every further report would refit all workloads."""
    return float(f"{median_low([median_low(user_votes) for user_votes in votes.values()]):.2g}")


def _bandwidth_of_shapes(
    theory: Theory, speeds: Mapping[Shape, MeasuredSpeed], model: IterationModel
) -> Iterator[tuple[Shape, float]]:
    """Yield parameters per second by shape, for shapes at the batch size of ``theory``."""
    if theory.inference or theory.params <= 0:
        return
    times = replace(times_without_communication(theory), params=theory.params)
    shapes = [
        shape
        for shape, m in speeds.items()
        if shape[0] > 1 and (not m.batch or is_near(m.batch, theory.batch_size))
    ]
    for shape in sorted(shapes, key=lambda s: (-speeds[s].records, s))[:MAX_SHAPES]:
        seconds = theory.batch_size / speeds[shape].per_gpu
        rate = _rate(times, shape, float(f"{seconds:.6g}"), model)
        if rate is not None:
            yield shape, rate


@lru_cache(maxsize=4096)
def _rate(times: BasicTimes, shape: Shape, seconds: float, model: IterationModel) -> float | None:
    """Return the parameters per second with which an iteration takes ``seconds``, or None."""

    def seconds_at(rate: float) -> float:
        return iteration_seconds(replace(times, b_link=rate, b_net=rate), *shape, model)

    if not OVERHEAD * seconds_at(FASTEST) < seconds < seconds_at(SLOWEST):
        return None
    low, high = SLOWEST, FASTEST
    for _ in range(STEPS):
        middle = sqrt(low * high)
        low, high = (middle, high) if seconds_at(middle) > seconds else (low, middle)
    return sqrt(low * high)

"""Bandwidths as other workloads' measured shapes imply them, where nobody calibrated.

Gradients of all trainings travel over the same links, so how much slower one got by spreading says
how much slower another will, by its parameters (eq. 2).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from math import sqrt
from statistics import median_low

from hopsd.core.speed.batches import near
from hopsd.core.speed.estimator import EstimatorSettings
from hopsd.core.speed.layers import Measured, by_workload
from hopsd.core.speed.theory import LINK, credible, silent
from hopsd.core.speed.throughput import BasicTimes, IterationModel, iteration_seconds
from hopsd.model.ids import GpuType, UserName, WorkloadName
from hopsd.model.isolation import find_failing_items
from hopsd.model.job import Shape
from hopsd.model.knowledge import Bandwidth, Knowledge, Theory

SLOWEST, FASTEST = 1e4, 1e13
"""Parameters per second that are looked for: 40 kB/s to 40 TB/s in float32."""

STEPS = 40
"""Bisections of the logarithm: to a relative error below 1e-10."""

MOST_SHAPES = 4
"""The shapes of a workload that are asked: those with the most records."""

NEWEST_WORKLOADS = 64
"""Workloads that are asked."""

OVERHEAD = 1.02
"""Slower by less than this than one GPU: within the scatter, which says nothing."""


_Votes = dict[UserName, list[float]]


def with_implied_bandwidths(
    knowledge: Knowledge, settings: EstimatorSettings, now: float
) -> Knowledge:
    """``knowledge`` with what all its workloads imply, but those that make that raise."""
    implied, _ = find_failing_items(
        informative(knowledge), lambda names: implied_bandwidths(knowledge, names, settings, now)
    )
    return replace(knowledge, implied=implied)


def informative(knowledge: Knowledge) -> tuple[WorkloadName, ...]:
    """The newest workloads measured over several servers, on types that nobody calibrated."""
    known = {bandwidth.gpu_type for bandwidth in knowledge.bandwidth}
    spread = {r.workload for r in knowledge.records if r.nodes > 1 and r.gpu_type not in known}
    newest: dict[WorkloadName, float] = {}
    for fit in knowledge.theory:
        if fit.workload in spread and not fit.inference and fit.params > 0:
            newest[fit.workload] = max(fit.at, newest.get(fit.workload, fit.at))
    return tuple(sorted(newest, key=lambda name: (-newest[name], name))[:NEWEST_WORKLOADS])


def implied_bandwidths(
    knowledge: Knowledge,
    workloads: Collection[WorkloadName],
    settings: EstimatorSettings,
    now: float,
) -> tuple[Bandwidth, ...]:
    """By type without calibration: the median of the users, each with the median of what his shapes
    imply, among ``workloads``.

    None of types of which none was measured over several servers: a server's links say nothing
    about the network. The network does, roughly: links are taken as :data:`LINK` times as fast.
    None under ``paper_exact``.
    """
    if settings.model.paper_exact:
        return ()
    calibrated = {bandwidth.gpu_type for bandwidth in (*knowledge.bandwidth, *settings.bandwidth)}
    records = [record for record in knowledge.records if record.workload in workloads]
    users = {r.workload: r.user for r in sorted(records, key=lambda r: -r.at)}  # the first one's
    layers = by_workload(records, settings.half_life_seconds, now)
    votes: dict[GpuType, tuple[_Votes, _Votes]] = defaultdict(
        lambda: (defaultdict(list), defaultdict(list))
    )
    for fit in filter(credible, knowledge.theory):
        of = layers.get(fit.workload)
        if of is None or fit.gpu_type in calibrated or fit.gpu_type not in of.type:
            continue
        measured = of.type[fit.gpu_type].answering(settings.min_records).shapes
        for shape, rate in _implied(fit, measured, settings.model):
            votes[fit.gpu_type][shape[1] > 1][users[fit.workload]].append(rate)
    found = []
    for gpu_type, (links, nets) in sorted(votes.items()):
        if nets:
            net = _of_users(nets)
            found.append(Bandwidth(gpu_type, _of_users(links) if links else LINK * net, net))
    return tuple(found)


def _of_users(votes: _Votes) -> float:
    """Rounded: a further report would refit all workloads otherwise."""
    return float(f"{median_low([median_low(own) for own in votes.values()]):.2g}")


def _implied(
    theory: Theory, measured: Mapping[Shape, Measured], model: IterationModel
) -> Iterator[tuple[Shape, float]]:
    """Parameters per second by shape, of those at the batch size of ``theory``."""
    if theory.inference or theory.params <= 0:
        return
    times = replace(silent(theory), params=theory.params)
    shapes = [
        shape
        for shape, m in measured.items()
        if shape[0] > 1 and (not m.batch or near(m.batch, theory.batch_size))
    ]
    for shape in sorted(shapes, key=lambda s: (-measured[s].records, s))[:MOST_SHAPES]:
        seconds = theory.batch_size / measured[shape].per_gpu
        rate = _rate(times, shape, float(f"{seconds:.6g}"), model)
        if rate is not None:
            yield shape, rate


@lru_cache(maxsize=4096)
def _rate(times: BasicTimes, shape: Shape, seconds: float, model: IterationModel) -> float | None:
    """Parameters per second with which an iteration takes ``seconds``; None if none does."""

    def at(rate: float) -> float:
        return iteration_seconds(replace(times, b_link=rate, b_net=rate), *shape, model)

    if not OVERHEAD * at(FASTEST) < seconds < at(SLOWEST):
        return None
    low, high = SLOWEST, FASTEST
    for _ in range(STEPS):
        middle = sqrt(low * high)
        low, high = (middle, high) if at(middle) > seconds else (low, middle)
    return sqrt(low * high)

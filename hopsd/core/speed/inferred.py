"""Bandwidths as other workloads' measured shapes imply them, where nobody calibrated.

Gradients of all trainings travel over the same links, so how much slower one got by spreading says
how much slower another will, by its parameters (eq. 2).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import sqrt
from statistics import median_low

from hopsd.core.speed.layers import Measured
from hopsd.core.speed.theory import LINK, silent
from hopsd.core.speed.throughput import BasicTimes, IterationModel, iteration_seconds
from hopsd.model.ids import GpuType, UserName, WorkloadName
from hopsd.model.job import Shape
from hopsd.model.knowledge import Bandwidth, Theory

SLOWEST, FASTEST = 1e4, 1e13
"""Parameters per second that are looked for: 40 kB/s to 40 TB/s in float32."""

STEPS = 40
"""Bisections of the logarithm: to a relative error below 1e-10."""

MOST_SHAPES = 4
"""The shapes of a workload that are asked: those with the most records."""

OVERHEAD = 1.02
"""Slower by less than this than one GPU: within the scatter, which says nothing."""


@dataclass(frozen=True, slots=True)
class Hint:
    """Parameters per second that a workload's shapes imply, within a server if ``together``.

    ``user``: who measured it.
    """

    workload: WorkloadName
    user: UserName
    together: bool
    rate: float


def hints(
    theory: Theory, measured: Mapping[Shape, Measured], user: UserName, model: IterationModel
) -> Iterator[Hint]:
    """What the shapes of a workload imply, measured on the type of its ``theory``."""
    if theory.inference or theory.params <= 0:
        return
    times = replace(silent(theory), params=theory.params)
    shapes = [shape for shape in measured if shape[0] > 1]
    for shape in sorted(shapes, key=lambda s: (-measured[s].records, s))[:MOST_SHAPES]:
        seconds = theory.batch_size / measured[shape].per_gpu
        rate = _implied(times, shape, float(f"{seconds:.6g}"), model)
        if rate is not None:
            yield Hint(theory.workload, user, shape[1] == 1, rate)


def bandwidth_of(gpu_type: GpuType, found: Iterable[Hint]) -> Bandwidth | None:
    """The median of the users, each with the median of what his workloads imply.

    None if none was measured over several servers: a server's links say nothing about the network.
    The network does, roughly: links are taken as :data:`LINK` times as fast.
    """
    votes: tuple[_Votes, _Votes] = defaultdict(list), defaultdict(list)
    for hint in found:
        votes[hint.together][hint.user].append(hint.rate)
    net, link = (median_low([median_low(v) for v in of.values()]) if of else None for of in votes)
    return Bandwidth(gpu_type, link or LINK * net, net) if net else None


_Votes = dict[UserName, list[float]]


@lru_cache(maxsize=4096)
def _implied(
    times: BasicTimes, shape: Shape, seconds: float, model: IterationModel
) -> float | None:
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

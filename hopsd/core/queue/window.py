"""Who may compete: the service window, sensitivity and its adjustment (section 3.6).

Means of sensitivities are exact and rounded once: equal jobs then compare as equal, and no job
joins a window by a rounding error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from hopsd.core.placement.pools import Pools, could_run, pools_of
from hopsd.core.speed.throughput import per_gpu
from hopsd.model.cluster import Node
from hopsd.model.ids import JobId
from hopsd.model.job import Job


def sensitivity(job: Job, nodes: Sequence[Node]) -> float | None:
    """rho: how much slower a GPU gets by spreading (eq. 10); None where nobody knows."""
    return _sensitivity(job, pools_of(nodes))


def sensitivities(jobs: Iterable[Job], nodes: Sequence[Node]) -> dict[JobId, float | None]:
    """:func:`sensitivity` of many jobs."""
    pools = pools_of(nodes)
    return {job.id: _sensitivity(job, pools) for job in jobs}


def _sensitivity(job: Job, pools: Pools) -> float | None:
    """Mean over the types with a spread table, weighted by all GPUs of the type."""
    if job.sensitivity is not None:
        return job.sensitivity
    ratios: list[tuple[int, float]] = []
    for pool in pools.values():
        table = job.throughput.get(pool.gpu_type)
        if table is not None and table.distributed:
            ratios.append((pool.gpus, per_gpu(table, 1, 1) / per_gpu(table, 2, 2)))
    return _mean(ratios)


def _mean(weighted: Sequence[tuple[int, float]]) -> float | None:
    """Weighted mean with one rounding; None of nothing."""
    parts = [(weight, *value.as_integer_ratio()) for weight, value in weighted]
    if not parts:
        return None
    # Denominators of floats are powers of two: the largest is a multiple of all.
    common = max(denominator for _, _, denominator in parts)
    total = sum(w * numerator * (common // d) for w, numerator, d in parts)
    return total / (common * sum(weight for weight, _, _ in parts))


def runnable(jobs: Iterable[Job], nodes: Sequence[Node]) -> list[Job]:
    """The jobs that an idle cluster could run; the others are in no window, sum or mean."""
    pools = pools_of(nodes)
    return [job for job in jobs if could_run(job, pools)]


def service_window(queue: Sequence[Job], gpus: int) -> int:
    """How many jobs from the queue's head are in the window.

    Minimum requirements add up to all ``gpus`` of the system; the job that crosses the line is
    the last inside. ``queue``: jobs that could run, in order.
    """
    asked = 0
    for position, job in enumerate(queue):
        if asked >= gpus:
            return position
        asked += min(job.reqs)
    return len(queue)


def sensitivity_adjustment(
    queue: Sequence[Job], window: int, rho: Mapping[JobId, float | None], idle: int
) -> list[Job]:
    """Jobs behind the window that join it to fill fragments, in queue order.

    While the window's mean sensitivity is above the whole queue's: jobs less sensitive than the
    queue's mean, whose minimum requirement all ``idle`` GPUs together could hold.
    """
    exact = {job.id: Fraction(r) for job in queue if (r := rho[job.id]) is not None}
    inside = [exact[job.id] for job in queue[:window] if job.id in exact]
    if not inside:
        return []
    mean = sum(exact.values(), Fraction(0)) / len(exact)
    total, count = sum(inside, Fraction(0)), len(inside)
    joined = []
    for job in queue[window:]:
        if total <= mean * count:
            break
        own = exact.get(job.id)
        if own is not None and own < mean and min(job.reqs) <= idle:
            joined.append(job)
            total, count = total + own, count + 1
    return joined

"""Sensitivity: how much slower a job's GPUs get when spread over servers (eq. 10 of the paper).

Means are exact and rounded once: equal jobs then compare as equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from hopsd.core.speed.throughput import per_gpu
from hopsd.model.ids import GpuType
from hopsd.model.job import Job

Answer = TypeVar("Answer")


class JobCache:
    """Answers that depend on a job's throughput tables, and on what all its users have in common.

    Jobs with the same tables share them. The operator's tables are the same at every plan;
    estimates from measurements are made anew, since the measurements' weights fall with time. So
    what the plan ``before`` did not ask for is dropped.
    """

    def __init__(self, before: JobCache | None = None) -> None:
        # With the tables, so that their id is nobody else's.
        self._answers: dict[object, tuple[object, Any]] = {}
        self._before = before._answers if before is not None else {}

    def lookup(self, job: Job, topic: object, work: Callable[[], Answer]) -> Answer:
        """The answer ``topic`` the job's tables; ``work`` finds it if nobody asked before."""
        key = id(job.throughput), topic
        entry = self._answers.get(key)
        if entry is None:
            entry = self._before.get(key) or (job.throughput, work())
            self._answers[key] = entry
        answer: Answer = entry[1]
        return answer


class HasGpuType(Protocol):
    """A GPU type and its number of GPUs."""

    @property
    def gpu_type(self) -> GpuType: ...

    @property
    def gpus(self) -> int: ...


def sensitivity_on(job: Job, pools: Mapping[GpuType, HasGpuType]) -> float | None:
    """rho: mean over the types with a spread table, weighted by all GPUs of the type.

    None if unknown.
    """
    if job.sensitivity is not None:
        return job.sensitivity
    ratios: list[tuple[int, float]] = []
    for pool in pools.values():
        table = job.throughput.get(pool.gpu_type)
        if table is not None and table.distributed:
            ratios.append((pool.gpus, per_gpu(table, 1, 1) / per_gpu(table, 2, 2)))
    return _mean(ratios)


class Sensitivities:
    """:func:`sensitivity_on` of many jobs on the same pools, worked out once for those with the
    same speeds. ``remembered``: of these pools.
    """

    def __init__(self, pools: Mapping[GpuType, HasGpuType], cache: JobCache | None = None) -> None:
        self._pools, self._cache = pools, cache or JobCache()

    def __call__(self, job: Job) -> float | None:
        if job.sensitivity is not None:
            return job.sensitivity
        return self._cache.lookup(job, "rho", lambda: sensitivity_on(job, self._pools))


def _mean(weighted_values: Sequence[tuple[int, float]]) -> float | None:
    """Weighted mean with one rounding; None of nothing."""
    parts = [(weight, *value.as_integer_ratio()) for weight, value in weighted_values]
    if not parts:
        return None
    # Denominators of floats are powers of two: the largest is a multiple of all.
    common = max(denominator for _, _, denominator in parts)
    total = sum(w * numerator * (common // d) for w, numerator, d in parts)
    return total / (common * sum(weight for weight, _, _ in parts))

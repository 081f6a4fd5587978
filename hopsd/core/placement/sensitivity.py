"""Sensitivity: how much slower a job's GPUs get when spread over servers (eq. 10 of the paper).

Means are exact and rounded only once, so that equal jobs compare as equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from hopsd.core.speed.throughput import per_gpu
from hopsd.model.ids import GpuType
from hopsd.model.job import Job

Answer = TypeVar("Answer")


class JobCache:
    """Caches answers that depend on a job's throughput tables and on data common to all callers.

    Jobs with the same tables share them. The operator's tables are the same in every plan, but
    estimates from measurements are new objects each time, since the weights of measurements
    decrease with time. Answers that the plan ``before`` did not ask for are therefore dropped.
    """

    def __init__(self, before: JobCache | None = None) -> None:
        # Entries keep the tables alive, so that no other object can get their id.
        self._answers: dict[object, tuple[object, Any]] = {}
        self._before = before._answers if before is not None else {}

    def lookup(self, job: Job, topic: object, work: Callable[[], Answer]) -> Answer:
        """Return the answer on ``topic`` for the job's tables; ``work`` computes a missing one."""
        key = id(job.throughput), topic
        entry = self._answers.get(key)
        if entry is None:
            entry = self._before.get(key) or (job.throughput, work())
            self._answers[key] = entry
        answer: Answer = entry[1]
        return answer


class HasGpuType(Protocol):
    """Anything with a GPU type and its number of GPUs."""

    @property
    def gpu_type(self) -> GpuType: ...

    @property
    def gpus(self) -> int: ...


def sensitivity_on(job: Job, pools: Mapping[GpuType, HasGpuType]) -> float | None:
    """Return rho: the mean over the types with a spread table, weighted by all GPUs of the type.

    Returns None if it is unknown.
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
    """Caches :func:`sensitivity_on` for many jobs on the same pools.

    It is computed once for jobs with the same speeds. ``cache``: the one for these pools.
    """

    def __init__(self, pools: Mapping[GpuType, HasGpuType], cache: JobCache | None = None) -> None:
        self._pools, self._cache = pools, cache or JobCache()

    def __call__(self, job: Job) -> float | None:
        if job.sensitivity is not None:
            return job.sensitivity
        return self._cache.lookup(job, "rho", lambda: sensitivity_on(job, self._pools))


def _mean(weighted_values: Sequence[tuple[int, float]]) -> float | None:
    """Return the weighted mean with a single rounding; None if there are no values."""
    parts = [(weight, *value.as_integer_ratio()) for weight, value in weighted_values]
    if not parts:
        return None
    # Denominators of floats are powers of two: the largest is a multiple of all.
    common = max(denominator for _, _, denominator in parts)
    total = sum(w * numerator * (common // d) for w, numerator, d in parts)
    return total / (common * sum(weight for weight, _, _ in parts))

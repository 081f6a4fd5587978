"""Which jobs compete: the service window, sensitivity and its adjustment (section 3.6).

Means of sensitivities are exact and rounded once, so that equal jobs compare as equal and no job
joins a window because of a rounding error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from hopsd.core.placement.pools import DEFAULT_SIGMA, RunnableFilter, job_cache, pools_of
from hopsd.core.placement.remaining_limits import RemainingLimit
from hopsd.core.placement.sensitivity import Sensitivities, sensitivity_on
from hopsd.model.ids import JobId
from hopsd.model.job import Job, Node


def sensitivity(job: Job, nodes: Sequence[Node]) -> float | None:
    """Return rho: how much slower a GPU gets when the job is spread (eq. 10); None if unknown."""
    return sensitivity_on(job, pools_of(nodes))


def sensitivities(jobs: Sequence[Job], nodes: Sequence[Node]) -> dict[JobId, float | None]:
    """Return the :func:`sensitivity` of many jobs."""
    rho = Sensitivities(pools_of(nodes), job_cache(nodes))
    return {job.id: rho(job) for job in jobs}


def runnable(jobs: Sequence[Job], nodes: Sequence[Node], sigma: float = DEFAULT_SIGMA) -> list[Job]:
    """Return the jobs that an idle cluster could run; others are in no window, sum or mean."""
    is_runnable = RunnableFilter(pools_of(nodes), sigma, job_cache(nodes))
    return [job for job in jobs if is_runnable(job)]


@dataclass(frozen=True, slots=True)
class BlockingLimit:
    """A limit with no room for a job after the kept jobs and its ``jobs_ahead`` in the window."""

    remaining_limit: RemainingLimit
    jobs_ahead: tuple[Job, ...]


class LimitBudget:
    """Tracks what the kept jobs leave of limits, while further jobs are reserved.

    Jobs are reserved one after the other, at their smallest requirements.
    """

    def __init__(self, remaining_limits: Sequence[RemainingLimit]) -> None:
        self._remaining_limits = remaining_limits
        self._inside: list[list[Job]] = [[] for _ in remaining_limits]
        self._requested_amounts = [0 for _ in remaining_limits]
        self._limits_of_job: dict[JobId, list[int]] = defaultdict(list)
        for i, remaining_limit in enumerate(remaining_limits):
            for job in remaining_limit.limit.jobs:
                self._limits_of_job[job].append(i)

    def blocking_limit(self, job: Job) -> BlockingLimit | None:
        """Return the first limit without room for the job at its smallest requirement."""
        for i in self._limits_of_job.get(job.id, ()):
            remaining_limit, jobs = self._remaining_limits[i], self._inside[i]
            request = self._requested_amounts[i] + remaining_limit.limit.amount(
                job.id, min(job.reqs)
            )
            if not remaining_limit.leaves(request, len(jobs) + 1):
                return BlockingLimit(remaining_limit, tuple(jobs))
        return None

    def reserve(self, job: Job) -> None:
        for i in self._limits_of_job.get(job.id, ()):
            self._inside[i].append(job)
            self._requested_amounts[i] += self._remaining_limits[i].limit.amount(
                job.id, min(job.reqs)
            )


def blocking_limits(
    queue: Sequence[Job], gpus: int, remaining_limits: Sequence[RemainingLimit]
) -> dict[JobId, BlockingLimit]:
    """Return the jobs that a limit excludes from the window and from every mean.

    ``queue``: jobs that could run, in order; ``gpus``: all GPUs of the cluster.
    """
    claimed_gpus = 0
    budget = LimitBudget(remaining_limits)
    blocks_by_job: dict[JobId, BlockingLimit] = {}
    for job in queue:
        block = budget.blocking_limit(job)
        if block is not None:
            blocks_by_job[job.id] = block
        elif claimed_gpus < gpus:
            claimed_gpus += min(job.reqs)
            budget.reserve(job)
    return blocks_by_job


def service_window(queue: Sequence[Job], gpus: int) -> int:
    """Return the number of jobs at the head of the queue that are in the window.

    Their minimum requirements add up to all ``gpus`` of the cluster; the job that reaches that
    number is the last one inside. ``queue``: jobs that could run, in order.
    """
    claimed_gpus = 0
    for position, job in enumerate(queue):
        if claimed_gpus >= gpus:
            return position
        claimed_gpus += min(job.reqs)
    return len(queue)


def sensitivity_adjustment(
    queue: Sequence[Job], window: int, rho: Mapping[JobId, float | None], idle: int
) -> list[Job]:
    """Return the jobs behind the window that join it to fill fragments, in queue order.

    As long as the window's mean sensitivity is above that of the whole queue, jobs join that are
    less sensitive than the queue's mean and whose minimum requirement fits in the ``idle`` GPUs.
    """
    exact = {job.id: Fraction(r) for job in queue if (r := rho[job.id]) is not None}
    inside = [exact[job.id] for job in queue[:window] if job.id in exact]
    if not inside:
        return []
    mean = sum(exact.values(), Fraction(0)) / len(exact)
    total, count = sum(inside, Fraction(0)), len(inside)
    additional = []
    for job in queue[window:]:
        if total <= mean * count:
            break
        rho_of_job = exact.get(job.id)
        if rho_of_job is not None and rho_of_job < mean and min(job.reqs) <= idle:
            additional.append(job)
            total, count = total + rho_of_job, count + 1
    return additional

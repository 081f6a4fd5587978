"""What site limits leave for the jobs of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hopsd.model.ids import JobId, job_order
from hopsd.model.job import Job
from hopsd.model.rules import Limit


@dataclass(frozen=True, slots=True)
class RemainingLimit:
    """A limit with the ``kept_jobs``, which stay, and what they take, in the limit's unit."""

    limit: Limit
    kept_jobs: tuple[JobId, ...] = ()
    kept_gpus: int = 0

    @property
    def gpus(self) -> int | None:
        """What is left for GPUs, in the limit's unit; None if unlimited."""
        return None if self.limit.gpus is None else max(0, self.limit.gpus - self.kept_gpus)

    @property
    def count(self) -> int | None:
        """How many more jobs may run; None if unlimited."""
        return None if self.limit.count is None else max(0, self.limit.count - len(self.kept_jobs))

    def leaves(self, gpus: int, count: int) -> bool:
        """Whether ``count`` jobs may take ``gpus`` together in addition to the kept jobs."""
        return (self.gpus is None or gpus <= self.gpus) and (
            self.count is None or count <= self.count
        )


def limits_after(
    limits: Iterable[Limit], staying_jobs: Sequence[Job]
) -> tuple[RemainingLimit, ...]:
    """Return one remaining limit per limit, given the running jobs that stay."""
    gpus = {job.id: job.running.gpus for job in staying_jobs if job.running}
    result = []
    for limit in limits:
        ids = tuple(sorted((job for job in limit.jobs if job in gpus), key=job_order))
        result.append(RemainingLimit(limit, ids, sum(limit.amount(job, gpus[job]) for job in ids)))
    return tuple(result)

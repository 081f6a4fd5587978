"""What site limits leave to the jobs of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hopsd.model.ids import JobId, job_order
from hopsd.model.job import Job
from hopsd.model.rules import Limit


@dataclass(frozen=True, slots=True)
class Allowance:
    """A limit, and the jobs ``kept`` that stay where they are on ``kept_gpus``."""

    limit: Limit
    kept: tuple[JobId, ...] = ()
    kept_gpus: int = 0

    @property
    def gpus(self) -> int | None:
        """What is left; None: no bound."""
        return None if self.limit.gpus is None else max(0, self.limit.gpus - self.kept_gpus)

    @property
    def count(self) -> int | None:
        """How many jobs more may run; None: no bound."""
        return None if self.limit.count is None else max(0, self.limit.count - len(self.kept))

    def leaves(self, gpus: int, count: int) -> bool:
        """Whether ``count`` jobs may have ``gpus`` GPUs together beside what is kept."""
        return (self.gpus is None or gpus <= self.gpus) and (
            self.count is None or count <= self.count
        )


def allowances(limits: Iterable[Limit], staying: Sequence[Job]) -> tuple[Allowance, ...]:
    """Of every limit, beside the running jobs that are ``staying``."""
    found = []
    for limit in limits:
        own = [job for job in staying if job.id in limit.jobs and job.running]
        ids = tuple(sorted((job.id for job in own), key=job_order))
        found.append(Allowance(limit, ids, sum(job.running.gpus for job in own)))
    return tuple(found)

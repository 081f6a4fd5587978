"""Classic queueing policies: FIFO, SJF, SRTF and LAS, with greedy placement and rigid jobs.

Jobs take the median of their requirements, on the fastest servers that are idle when their
turn comes. FIFO and SJF never preempt; in FIFO no job overtakes another, SJF skips jobs that do not
fit. SRTF and LAS choose anew at each round's start among waiting and running jobs; a running job
moves to faster servers that are idle at its turn if, over its remaining time, it gains more than
its restart costs. LAS does not know that time and assumes that it is as long as the past run time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import ClassVar

from hopsd.core.queue.priority import age_seconds, queue, remaining_seconds
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.model.job import Job
from hopsd.model.plan import JobNumbers, Plan, PlanSettings, PriorityName, Snapshot
from hopsd.model.reason import Reason, ReasonCode
from hopsd.policies.placing import Servers


@dataclass(frozen=True, slots=True)
class Classic:
    """A queueing policy. With ``preempts``, running jobs compete at a round's start. With
    ``overtakes``, jobs behind one that does not fit may still start.
    """

    settles: ClassVar[bool] = True
    priority: PriorityName
    preempts: bool
    overtakes: bool

    @property
    def steady(self) -> bool:
        """Whether the waiting jobs keep waiting until something happens."""
        return not self.preempts

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:
        order = queue(snapshot, replace(settings, priority=self.priority))
        servers = Servers(snapshot)
        placements: dict[JobId, Allocation] = {}
        waiting: dict[JobId, Reason] = {}
        if not self.preempts:
            placements = {job.id: job.running for job in order.jobs if job.running}
            for allocation in placements.values():
                servers.take(allocation)
        is_blocked = False
        for job in order.jobs:
            if job.id in placements:
                continue
            gpus = servers.rigid(job)
            if gpus is None:
                text = "no server or group of servers of a type that it can use is large enough"
                waiting[job.id] = Reason(ReasonCode.NO_CONFIGURATION, text)
                continue
            best = None
            if not is_blocked and servers.left:
                best = servers.fastest(job, gpus)
                if job.running and servers.holds(job.running):
                    remaining_seconds = self._remaining(job, snapshot, servers)
                    best = _better(job, best, remaining_seconds, servers) or job.running
            if best is None:
                is_blocked = not self.overtakes
                text = f"{gpus} GPUs are not idle together" if not is_blocked else "not its turn"
                waiting[job.id] = Reason(ReasonCode.LOST_TO_OTHERS, text)
            else:
                servers.take(best)
                placements[job.id] = best
        return Plan(
            placements=placements,
            window=tuple(job.id for job in order.jobs),
            fragments=servers.left if waiting else 0,
            waiting=waiting,
            jobs={
                job.id: JobNumbers(order.priority[job.id], None, None, None, None)
                for job in order.jobs
            },
        )

    def _remaining(self, job: Job, snapshot: Snapshot, servers: Servers) -> float:
        """The job's assumed remaining seconds where it runs now."""
        if self.priority is PriorityName.LAS:
            return job.run_seconds
        if job.samples is not None:
            rate = servers.rate_at(job, job.running)
            return (job.samples - job.samples_done) / rate if rate > 0 else inf
        return remaining_seconds(job, age_seconds(job, snapshot.nodes))


def _better(
    job: Job, allocation: Allocation | None, remaining_seconds: float, servers: Servers
) -> Allocation | None:
    """Return ``allocation`` if the job ends sooner by moving there; None if it should stay.

    A job whose speed on its present servers is unknown moves to where it is known.
    """
    if allocation is None or allocation == job.running:
        return None
    new_rate, current_rate = servers.rate_at(job, allocation), servers.rate_at(job, job.running)
    if current_rate <= 0.0:
        return allocation
    return (
        allocation
        if job.restart_seconds + remaining_seconds * current_rate / new_rate < remaining_seconds
        else None
    )


fifo = Classic(PriorityName.FIFO, preempts=False, overtakes=False)
sjf = Classic(PriorityName.SJF, preempts=False, overtakes=True)
srtf = Classic(PriorityName.SRTF, preempts=True, overtakes=True)
las = Classic(PriorityName.LAS, preempts=True, overtakes=True)

"""Apps: the jobs of one user's hyper-parameter search, or a single job (Themis, 2.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from hopsd.core.queue.competing import competes
from hopsd.core.queue.history import AppKey
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId, job_order
from hopsd.model.job import Job, JobState
from hopsd.model.plan import Snapshot
from hopsd.policies.placing import Servers


@dataclass(frozen=True, slots=True)
class App:
    """An app with all of its ``jobs`` that have not ended, including those of later phases.

    ``contending`` are those of ``jobs`` that an offer is for.
    """

    key: AppKey
    jobs: tuple[Job, ...]
    contending: tuple[Job, ...]

    @property
    def submit(self) -> float:
        """The earliest submission of its jobs."""
        return min(job.submit for job in self.jobs)

    @property
    def waits_since(self) -> float | None:
        """Time since which the app has held nothing; None while it holds something."""
        if self.present:
            return None
        waiting_times = [job.waiting_since for job in self.jobs if job.waiting_since is not None]
        return max(waiting_times, default=self.submit)

    @property
    def present(self) -> Allocation:
        """All that its jobs hold now."""
        return union(job.running for job in self.jobs)

    @property
    def kept_gpus(self) -> Allocation:
        """The GPUs of its jobs that do not contend."""
        contenders = {job.id for job in self.contending}
        return union(job.running for job in self.jobs if job.id not in contenders)

    @property
    def order(self) -> tuple[float, tuple[int, int, int, str]]:
        """Sort key: earliest submission first, ties by first job."""
        return self.submit, min(job_order(job.id) for job in self.jobs)


def union(allocations: Iterable[Allocation]) -> Allocation:
    """The sum of allocations."""
    total: Counter[str] = Counter()
    for allocation in allocations:
        total.update(allocation.as_dict())
    return Allocation.of(total)


def apps_of(snapshot: Snapshot, leased_jobs: Collection[JobId]) -> list[App]:
    """Return all apps, in their order. Held jobs and those being profiled belong to none."""
    members: dict[AppKey, list[Job]] = {}
    for job in snapshot.jobs:
        if job.running or job.state in (JobState.WAITING, JobState.DEPENDENCY):
            key: AppKey = job.id if job.app is None else (job.user, job.app)
            members.setdefault(key, []).append(job)
    first = snapshot.round.first
    apps = [
        App(
            key,
            tuple(sorted(jobs, key=lambda job: job_order(job.id))),
            tuple(
                job
                for job in sorted(jobs, key=lambda job: job_order(job.id))
                if competes(job, first=first) and job.id not in leased_jobs
            ),
        )
        for key, jobs in members.items()
    ]
    return sorted(apps, key=lambda app: app.order)


def divide(
    jobs: Sequence[tuple[Job, float]], win: Allocation, servers: Servers
) -> dict[JobId, Allocation]:
    """Divide an app's GPUs among its jobs, each given with its remaining seconds on one GPU.

    Jobs that can stay do. Then each of the others starts on its smallest count, the longest first,
    and the one that would end last takes its next larger count as long as there are GPUs.
    """
    app_servers = servers.restrict(win)
    placements: dict[JobId, Allocation] = {}
    for job, _ in jobs:
        if job.running and app_servers.holds(job.running):
            placements[job.id] = job.running
            app_servers.take(job.running)
    for job, _ in sorted(jobs, key=lambda pair: -pair[1]):
        allocation = None if job.id in placements else app_servers.fastest(job, min(job.reqs))
        if allocation is not None:
            placements[job.id] = allocation
            app_servers.take(allocation)
    growable_jobs = [(job, work) for job, work in jobs if job.id in placements]
    while growable_jobs and app_servers.left:
        last = max(growable_jobs, key=lambda pair: pair[1] / placements[pair[0].id].gpus)
        if not grow(last[0], placements, app_servers):
            growable_jobs.remove(last)
    return placements


def grow(job: Job, placements: dict[JobId, Allocation], servers: Servers) -> bool:
    """Give a placed job its next larger count if there is room; return whether there was."""
    present = placements[job.id]
    larger = min((count for count in job.reqs if count > present.gpus), default=None)
    if larger is None:
        return False
    servers.give_back(present)
    allocation = servers.fastest(job, larger)
    placements[job.id] = allocation or present
    servers.take(placements[job.id])
    return allocation is not None

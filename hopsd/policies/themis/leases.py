"""Leases: which jobs keep their GPUs when a round begins (Themis, section 4.2.2)."""

from __future__ import annotations

from math import floor

from hopsd.core.queue.competing import competes
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.model.job import Job
from hopsd.model.plan import Snapshot
from hopsd.policies.placing import Servers
from hopsd.policies.themis.apps import App, apps_of


def without_leases(
    snapshot: Snapshot, lease_seconds: float
) -> tuple[Servers, dict[JobId, Allocation], list[App]]:
    """Return the servers without the GPUs under lease, the leased placements, and all apps."""
    stay = leased_jobs(snapshot, lease_seconds)
    allocations = {job.id: job.running for job in snapshot.jobs if job.id in stay}
    servers = Servers(snapshot)
    for allocation in allocations.values():
        servers.take(allocation)
    return servers, allocations, apps_of(snapshot, stay)


def leased_jobs(snapshot: Snapshot, lease_seconds: float) -> frozenset[JobId]:
    """Running jobs that would compete this round but still hold a lease.

    A lease begins with an allocation and is renewed every ``lease_seconds``, so a job's GPUs are
    offered at the first round after each lease ends; at every round if ``lease_seconds`` is 0.
    """
    if not snapshot.round.first:
        return frozenset()
    return frozenset(
        job.id
        for job in snapshot.jobs
        if job.running and competes(job, first=True) and _lasts(job, snapshot, lease_seconds)
    )


def _lasts(job: Job, snapshot: Snapshot, lease_seconds: float) -> bool:
    if job.running_since is None or lease_seconds <= 0:
        return False
    run_seconds = snapshot.now - job.running_since
    previous_run_seconds = run_seconds - snapshot.round.seconds
    return floor(max(0.0, previous_run_seconds) / lease_seconds) == floor(
        run_seconds / lease_seconds
    )

"""Which jobs a plan decides about, and the resources that they compete for."""

from __future__ import annotations

from hopsd.core.placement.available import AvailableResources
from hopsd.core.placement.ledger import Ledger
from hopsd.core.placement.remaining_limits import limits_after
from hopsd.model.job import Job, JobState
from hopsd.model.plan import Snapshot


def competes(job: Job, *, first: bool) -> bool:
    """Whether a plan decides about the job.

    Waiting jobs compete, and in a first plan also running jobs that may be moved. Held and
    dependent jobs, and jobs being profiled, are in no queue and keep what they hold.
    """
    if job.state is not JobState.WAITING:
        return False
    return not job.running or (first and job.preemptible)


def competing_jobs(snapshot: Snapshot) -> list[Job]:
    """Return the jobs that a plan decides about, in the snapshot's order."""
    return [job for job in snapshot.jobs if competes(job, first=snapshot.round.first)]


def staying_jobs(snapshot: Snapshot) -> list[Job]:
    """Return the running jobs that a plan leaves in place."""
    first = snapshot.round.first
    return [job for job in snapshot.jobs if job.running and not competes(job, first=first)]


def available_resources(snapshot: Snapshot) -> AvailableResources:
    """Return what a plan may assign on each node, in a first plan also what competing jobs hold."""
    moving_jobs = [job for job in competing_jobs(snapshot) if job.running]
    return AvailableResources.from_jobs(snapshot.nodes, moving_jobs, staying_jobs(snapshot))


def ledger_of(snapshot: Snapshot) -> Ledger:
    """Return a ledger of the available resources and the limits, with no placement made yet."""
    remaining_limits = limits_after(snapshot.limits, staying_jobs(snapshot))
    return Ledger(available_resources(snapshot), remaining_limits)


def idle_gpus(snapshot: Snapshot) -> list[int]:
    """Return the GPUs that a plan may assign, by node in the cluster's order.

    In a first plan these include the GPUs that competing jobs hold now.
    """
    idle = {node.name: node.idle for node in snapshot.nodes}
    for job in competing_jobs(snapshot):
        for name, gpus in job.running:
            if name in idle:
                idle[name] += gpus
    return [idle[node.name] for node in snapshot.nodes]

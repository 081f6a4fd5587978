"""A custom policy: the job with the highest latency ratio gets the most GPUs that it accepts."""

from hopsd.api import Job, Plan, PlanSettings, Reason, ReasonCode, Servers, Snapshot, competing_jobs


def plan(snapshot: Snapshot, settings: PlanSettings) -> Plan:
    """Running jobs keep their GPUs; the others take idle ones, in order of latency ratio."""
    servers, placements, waiting = Servers(snapshot), {}, {}
    jobs = competing_jobs(snapshot)
    for job in jobs:
        if job.running:
            placements[job.id] = job.running
            servers.take(job.running)
    for job in sorted((j for j in jobs if not j.running), key=latency_ratio, reverse=True):
        options = (servers.fastest(job, gpus) for gpus in sorted(job.reqs, reverse=True))
        best = next((allocation for allocation in options if allocation), None)
        if best is None:
            waiting[job.id] = Reason(ReasonCode.LOST_TO_OTHERS, "too few GPUs are idle together")
        else:
            placements[job.id] = best
            servers.take(best)
    return Plan(placements, waiting=waiting, fragments=servers.left if waiting else 0)


def latency_ratio(job: Job) -> float:
    """Waiting time over the expected run time; a job of unknown length counts as one hour."""
    return job.wait_seconds / (job.age_seconds or 3600.0)

"""Derives what the metrics need to know about a workload's jobs."""

from __future__ import annotations

from functools import partial
from math import inf

from hopsd.core.placement.pools import RunnableFilter, pools_of
from hopsd.core.queue.priority import ages
from hopsd.core.speed.throughput import single_gpu
from hopsd.model.devices import usable
from hopsd.model.ids import JobId
from hopsd.model.job import Job, Node
from hopsd.model.scenario import Cluster, Workload
from hopsd.sim.metrics import JobBaseline
from hopsd.sim.speed import AllocationSpeeds


def facts_of(cluster: Cluster, workload: Workload) -> list[JobBaseline]:
    """Compute one entry per job, in the workload's order."""
    nodes, jobs = _nodes(cluster), jobs_of(workload)
    speeds, expected_seconds, filter_ = (
        AllocationSpeeds(cluster, workload),
        ages(jobs, nodes),
        RunnableFilter(pools_of(nodes)),
    )
    facts = []
    for spec, job in zip(workload.jobs, jobs, strict=True):
        age = expected_seconds[job.id]
        facts.append(
            JobBaseline(
                id=spec.id,
                submit=spec.submit,
                age=age,
                gpu_seconds=age * sum(spec.reqs) / len(spec.reqs),
                mean_gpu_seconds=_mean_gpu_seconds(job, spec.samples, filter_),
                gpus_max=max(spec.reqs),
                rate=partial(speeds.rate, spec.workload),
            )
        )
    return facts


def _mean_gpu_seconds(job: Job, samples: float, filter_: RunnableFilter) -> float:
    """Time on one GPU with the mean speed of all that the job could get; infinite if none."""
    pools = list(filter_.pools(job))
    speed = sum(pool.gpus * single_gpu(job, pool.gpu_type) for pool in pools)
    return samples * sum(pool.gpus for pool in pools) / speed if speed > 0.0 else inf


def unplaceable(cluster: Cluster, workload: Workload) -> list[JobId]:
    """Jobs whose smallest requirement no idle server or group of servers can hold."""
    filter_ = RunnableFilter(pools_of(_nodes(cluster)))
    return [job.id for job in jobs_of(workload) if not filter_(job)]


def _nodes(cluster: Cluster) -> list[Node]:
    return [Node(s.name, s.gpu_type, s.gpus, s.gpus) for s in cluster.servers]


def jobs_of(workload: Workload) -> list[Job]:
    """Return the jobs as a scheduler sees them when they are submitted."""
    return [
        Job(
            id=spec.id,
            user=spec.user,
            submit=spec.submit,
            wait_seconds=0.0,
            reqs=spec.reqs,
            throughput=usable(workload.throughput[spec.workload], cpu=spec.cpu),
            samples=spec.samples,
        )
        for spec in workload.jobs
    ]

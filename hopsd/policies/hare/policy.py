"""Hare in rounds: a plan is the start of a task schedule for the present jobs.

Hare switches a GPU between jobs within milliseconds and knows all arrivals. Here a GPU stays with
a job until a plan takes it away, and future arrivals are unknown. So each plan makes a new schedule
(Algorithm 1 on the relaxation) of the remaining training, and gives each job the GPUs on which its
tasks begin at once:

- A job's scale is its rigid size, the median requirement. Its tasks divide its remaining training
  into pieces of about a scheduling round on one GPU of the fastest type, but at most
  ``MAX_PIECES`` rounds of them: only the order of later ones matters now.
- Since a GPU is not given away while a job synchronises, T^s is part of T^c.
- Tasks of a round that share a GPU train one after the other: a job may get fewer GPUs than its
  scale, as far as its requirements allow. These are of one type, since a round is as fast as its
  slowest task, and are placed as close together as possible.
- All jobs weigh the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hopsd.core.queue.competing import competing_jobs
from hopsd.core.queue.priority import age_seconds
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, job_order
from hopsd.model.job import Job
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.model.reason import Reason, ReasonCode
from hopsd.policies.hare.schedulers import SCHEDULERS, Scheduler, schedule
from hopsd.policies.hare.tasks import Instance, Schedule
from hopsd.policies.placing import Servers

MAX_PIECES = 3
"""Maximum number of rounds of tasks that a job's remaining training is divided into."""

INTERVALS = 6
"""Intervals of the relaxation; plans are renewed soon, so it may be coarse."""

UNSTARTED_SHARE = 1e-3
"""Minimum share of its training that a job is expected to have left."""


@dataclass(frozen=True, slots=True)
class Hare:
    """The Hare policy. ``scheduler`` turns the relaxation into a task schedule."""

    scheduler: Scheduler

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:  # noqa: ARG002
        servers = Servers(snapshot)
        waiting: dict[JobId, Reason] = {}
        jobs: list[Job] = []
        for job in sorted(competing_jobs(snapshot), key=lambda j: (j.submit, job_order(j.id))):
            if servers.rigid(job) is None:
                text = "no server or group of servers of a type that it can use is large enough"
                waiting[job.id] = Reason(ReasonCode.NO_CONFIGURATION, text)
            else:
                jobs.append(job)
        if not jobs or not servers.left:
            return Plan(placements={}, waiting=waiting | {job.id: _BEHIND_OTHERS for job in jobs})
        instance = instance_of(snapshot, servers, jobs)
        task_schedule = schedule(instance, self.scheduler, INTERVALS)
        placements = _place(
            servers, jobs, _starting_gpus(instance, task_schedule, list(servers.types))
        )
        for job in jobs:
            if job.id not in placements:
                waiting[job.id] = _BEHIND_OTHERS
        total = task_schedule.weighted_completion(instance)
        return Plan(
            placements=placements,
            objective=-total,
            upper_bound=-task_schedule.lower_bound,
            gap=1.0 - task_schedule.lower_bound / total,
            fragments=servers.left if len(placements) < len(jobs) else 0,
            waiting=waiting,
        )


_BEHIND_OTHERS = Reason(
    ReasonCode.LOST_TO_OTHERS, "its tasks are scheduled behind those of other jobs"
)


def instance_of(snapshot: Snapshot, servers: Servers, jobs: Sequence[Job]) -> Instance:
    """Express the rest of ``jobs`` as tasks, in seconds from now; every job has a rigid size.

    GPUs that this plan may not allocate become free a scheduling round from now.
    """
    types = list(servers.types)
    scale = np.array([servers.rigid(job) for job in jobs])
    speed = np.array(
        [[_per_gpu(servers, j, t, k) for t in types] for j, k in zip(jobs, scale, strict=True)]
    )
    remaining_work = np.array(
        [_remaining_seconds(snapshot, servers, j, k) for j, k in zip(jobs, scale, strict=True)]
    )
    pieces = remaining_work / (scale * speed.max(axis=1) * snapshot.round.seconds)
    rounds = np.clip(np.ceil(pieces), 1, MAX_PIECES).astype(np.int64)
    with np.errstate(divide="ignore"):
        train = (remaining_work / (scale * rounds))[:, None] / speed
    kinds = [types.index(n.gpu_type) for n in snapshot.nodes for _ in range(n.gpus)]
    free = [
        0.0 if i < servers.idle[n.name] else snapshot.round.seconds
        for n in snapshot.nodes
        for i in range(n.gpus)
    ]
    return Instance(
        arrival=np.zeros(len(jobs)),
        weight=np.ones(len(jobs)),
        rounds=rounds,
        scale=scale,
        train=train,
        sync=np.zeros_like(train),
        gpu_type=np.array(kinds),
        free_from=np.array(free),
    )


def _sizes(job: Job, scale: int) -> list[int]:
    """GPU counts on which a round's tasks can run, in parallel or in turn; the largest first."""
    return sorted((r for r in set(job.reqs) if r <= scale), reverse=True)


def _per_gpu(servers: Servers, job: Job, gpu_type: GpuType, scale: int) -> float:
    """Samples/s per GPU with as many GPUs of the type as possible, synchronisation included."""
    size = next((r for r in _sizes(job, scale) if servers.runs_on(job, gpu_type, r)), None)
    return 0.0 if size is None else servers.rate_on(job, gpu_type, size) / size


def _remaining_seconds(snapshot: Snapshot, servers: Servers, job: Job, scale: int) -> float:
    """Remaining work in samples; if undeclared, from the expected run time on the mean type."""
    if job.samples is not None:
        return max(job.samples - job.samples_done, job.samples * UNSTARTED_SHARE)
    rates = {t: servers.rate_on(job, t, scale) for t in servers.types}
    usable_rates = [(rate, servers.types[t]) for t, rate in rates.items() if rate > 0]
    mean = sum(rate * gpus for rate, gpus in usable_rates) / sum(gpus for _, gpus in usable_rates)
    age = age_seconds(job, snapshot.nodes)
    return mean * max(age - job.run_seconds, age * UNSTARTED_SHARE)


def _starting_gpus(
    instance: Instance, task_schedule: Schedule, types: Sequence[GpuType]
) -> dict[int, Counter[GpuType]]:
    """Count the GPUs by type on which each job's tasks begin now; jobs in order of their tasks."""
    starting_tasks = np.flatnonzero(task_schedule.start <= 0.0)
    owner = instance.job_of_task[starting_tasks]
    gpus_by_job: dict[int, Counter[GpuType]] = {}
    for job, gpu in zip(owner.tolist(), task_schedule.gpu[starting_tasks].tolist(), strict=True):
        gpus_by_job.setdefault(job, Counter())[types[instance.gpu_type[gpu]]] += 1
    return gpus_by_job


def _place(
    servers: Servers, jobs: Sequence[Job], gpus_by_job: dict[int, Counter[GpuType]]
) -> dict[JobId, Allocation]:
    """Place jobs: those that can stay do, then the others, large before small."""
    placements: dict[JobId, Allocation] = {}
    moves = []
    for i, gpus in gpus_by_job.items():
        best = _best(servers, jobs[i], gpus)
        running = jobs[i].running
        if (
            best is not None
            and (servers.type_of(running), running.gpus) == best
            and servers.holds(running)
        ):
            servers.take(running)
            placements[jobs[i].id] = running
        else:
            moves.append((i, best))
    for i, best in sorted(moves, key=lambda pair: -(pair[1][1] if pair[1] else 0)):
        allocation = _best_allocation(servers, jobs[i], best, sum(gpus_by_job[i].values()))
        if allocation is not None:
            servers.take(allocation)
            placements[jobs[i].id] = allocation
    return placements


def _best(servers: Servers, job: Job, gpus: Counter[GpuType]) -> tuple[GpuType, int] | None:
    """The fastest type and count within what the job's tasks got; None if no count fits."""
    options = [
        (servers.rate_on(job, t, size), t, size)
        for t, gpus_max in gpus.items()
        for size in _sizes(job, gpus_max)
    ]
    usable = [(t, size) for rate, t, size in options if rate > 0]
    rates = [rate for rate, _, _ in options if rate > 0]
    return usable[int(np.argmax(rates))] if usable else None


def _best_allocation(
    servers: Servers, job: Job, best: tuple[GpuType, int] | None, gpus_max: int
) -> Allocation | None:
    """Place the best type and count if there is room, else as many GPUs as any type has."""
    if best is not None:
        allocation = servers.fastest(job, best[1], [best[0]])
        if allocation is not None:
            return allocation
    for size in _sizes(job, gpus_max):
        allocation = servers.fastest(job, size)
        if allocation is not None:
            return allocation
    return None


plan = Hare(SCHEDULERS["hare"])

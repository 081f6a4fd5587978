"""Gavel (Narayanan et al., OSDI 2020): time fractions per GPU type, realised in rounds.

A linear program gives each job the share of time ``X[m, t]`` that it should spend on each GPU
type; rounds realise it by giving GPUs to the largest ``X / fraction received``. If the program
already accounts for each job's remaining work, ``X`` alone decides: the authors' scheduler forgets
the time received whenever shares are computed, and counting the time of a job's whole life twice
makes the makespan 9 % longer (docs/policies.md). As in the authors' scheduler
(stanford-futuredata/gavel, ``_schedule_jobs_on_workers_helper``), every type has its own queue, and
GPUs that jobs with a share leave idle go to those with X = 0. Jobs are rigid at the median
requirement; plans are made only at a round's start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from hops_rivals.gavel.fractions import (
    Shares,
    finish_time_fairness,
    makespan,
    max_min,
    max_sum,
)

from hopsd.core.queue.competing import competing_jobs
from hopsd.core.queue.priority import ages, queue, remaining_seconds
from hopsd.model.allocation import Allocation
from hopsd.model.arrays import Floats
from hopsd.model.ids import GpuType, JobId
from hopsd.model.job import Job
from hopsd.model.plan import Plan, PlanSettings, PriorityName, Snapshot
from hopsd.model.reason import Reason, ReasonCode
from hopsd.policies.placing import Servers

Program = Callable[[Shares], Floats]

_MIN_SHARE = 1e-9
"""Smaller shares of time are rounding errors of the linear program."""


@dataclass(frozen=True, slots=True)
class Gavel:
    """The Gavel policy.

    ``program`` computes the time fractions. With ``by_share``, the rounds follow these alone. With
    ``by_queue``, they follow the queue's order instead of Gavel's priorities, as the Hops paper ran
    it (section 4.2).
    """

    only_first: ClassVar[bool] = True
    program: Program
    by_share: bool = False
    by_queue: bool = False

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:
        if not snapshot.round.first:
            return Plan(placements={})
        servers = Servers(snapshot)
        waiting: dict[JobId, Reason] = {}
        jobs: list[Job] = []
        gpus: list[int] = []
        for job in competing_jobs(snapshot):
            rigid = servers.rigid(job)
            if rigid is None:
                text = "no GPU type that it can use is large enough for its requirement"
                waiting[job.id] = Reason(ReasonCode.NO_CONFIGURATION, text)
            else:
                jobs.append(job)
                gpus.append(rigid)
        if not jobs:
            return Plan(placements={}, waiting=waiting)
        shares = shares_of(snapshot, servers, jobs, gpus)
        any_runnable = bool(shares.rates.any())
        fractions = self.program(shares) if any_runnable else np.zeros_like(shares.rates)
        order = self._order(snapshot, settings, jobs, shares, fractions)
        types = list(servers.types)
        placements = _place(servers, jobs, gpus, _assign(order, shares), types)
        for job in jobs:
            if job.id not in placements:
                text = "other jobs are further behind their share of GPU time"
                waiting[job.id] = Reason(ReasonCode.LOST_TO_OTHERS, text)
        fragments = servers.left if len(placements) < len(jobs) else 0
        return Plan(placements=placements, waiting=waiting, fragments=fragments)

    def _order(
        self,
        snapshot: Snapshot,
        settings: PlanSettings,
        jobs: Sequence[Job],
        shares: Shares,
        fractions: Floats,
    ) -> list[tuple[int, int]]:
        """Sort (job, type) pairs, the one to serve first in front."""
        urgency = fractions if self.by_share else _urgency(snapshot, jobs, shares, fractions)
        if not self.by_queue:
            able = [(int(m), int(t)) for m, t in np.argwhere(shares.rates > 0)]
            turn = np.argsort(np.argsort(-_speed_of_types(shares), kind="stable"))
            return sorted(able, key=lambda p: (turn[p[1]], -urgency[p], -fractions[p], p))
        pairs = [(int(m), int(t)) for m, t in np.argwhere(fractions > _MIN_SHARE)]
        by_latency_ratio = replace(settings, priority=PriorityName.LATENCY_RATIO)
        rank = {job.id: i for i, job in enumerate(queue(snapshot, by_latency_ratio).jobs)}
        last = len(rank)
        return sorted(pairs, key=lambda p: (rank.get(jobs[p[0]].id, last), -urgency[p], p))


def shares_of(
    snapshot: Snapshot, servers: Servers, jobs: Sequence[Job], gpus: Sequence[int]
) -> Shares:
    """Build the program's input; rates assume the tightest placement that the type allows."""
    types = list(servers.types)
    type_index = {node.name: types.index(node.gpu_type) for node in snapshot.nodes}
    capacity = np.zeros(len(types))
    for name, idle in servers.idle.items():
        capacity[type_index[name]] += idle
    rates = np.array(
        [[servers.rate_on(j, t, g) for t in types] for j, g in zip(jobs, gpus, strict=True)]
    )
    rates[:, capacity <= 0] = 0.0
    mean_rate = np.maximum(rates @ (capacity / max(1.0, float(capacity.sum()))), 1e-12)
    expected_seconds = ages(jobs, snapshot.nodes)
    total = np.array(
        [j.samples or expected_seconds[j.id] * r for j, r in zip(jobs, mean_rate, strict=True)]
    )
    remaining = np.array(
        [
            j.samples - j.samples_done
            if j.samples
            else remaining_seconds(j, expected_seconds[j.id]) * r
            for j, r in zip(jobs, mean_rate, strict=True)
        ]
    )
    present = np.array([len(jobs) if j.contention is None else j.contention for j in jobs])
    shares = Shares(
        rates=rates,
        gpus=np.array(gpus, dtype=float),
        capacity=capacity,
        remaining=np.maximum(remaining, 1e-6 * total),
        elapsed_seconds=np.array([max(0.0, snapshot.now - j.submit) for j in jobs]),
        past=np.zeros(len(jobs)),
    )
    past = np.maximum(total - remaining, 0.0) / shares.isolated_rates(np.maximum(present, 1.0))
    return replace(shares, past=past)


def _speed_of_types(shares: Shares) -> Floats:
    """Mean speed of jobs on each type, relative to that with equal shares of all: (types,)."""
    relative: Floats = (shares.rates / shares.equal_rates[:, None]).mean(axis=0)
    return relative


def _urgency(snapshot: Snapshot, jobs: Sequence[Job], shares: Shares, fractions: Floats) -> Floats:
    """Compute X / fraction of time received, (jobs, types); shares of which nothing was received
    are most urgent, and jobs without a share least.
    """
    types = list(dict.fromkeys(node.gpu_type for node in snapshot.nodes))
    received_seconds = np.array([[j.run_seconds_by_type.get(t, 0.0) for t in types] for j in jobs])
    life = np.maximum(shares.elapsed_seconds, 1e-9)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        urgency: Floats = np.where(
            received_seconds > 0, fractions * life / received_seconds, np.inf
        )
    urgency[fractions <= _MIN_SHARE] = 0.0
    return urgency


def _assign(order: Sequence[tuple[int, int]], shares: Shares) -> dict[int, int]:
    """Assign each job at most one type, within every type's GPUs."""
    free_gpus = shares.capacity.copy()
    type_of_job: dict[int, int] = {}
    for job, gpu_type in order:
        if job not in type_of_job and shares.gpus[job] <= free_gpus[gpu_type]:
            type_of_job[job] = gpu_type
            free_gpus[gpu_type] -= shares.gpus[job]
    return type_of_job


def _place(
    servers: Servers,
    jobs: Sequence[Job],
    gpus: Sequence[int],
    type_of_job: dict[int, int],
    types: Sequence[GpuType],
) -> dict[JobId, Allocation]:
    """Place jobs: those that keep their type stay where they are, then large before small."""
    placements: dict[JobId, Allocation] = {}
    moving = []
    for i, t in type_of_job.items():
        running = jobs[i].running
        stays = servers.type_of(running) == types[t] and running.gpus == gpus[i]
        if stays and servers.holds(running):
            servers.take(running)
            placements[jobs[i].id] = running
        else:
            moving.append((i, t))
    for i, t in sorted(moving, key=lambda pair: (-gpus[pair[0]], pair[0])):
        allocation = servers.fastest(jobs[i], gpus[i], [types[t]])
        if allocation is not None:
            servers.take(allocation)
            placements[jobs[i].id] = allocation
    return placements


plan = Gavel(max_min)
plan_ftf = Gavel(finish_time_fairness, by_share=True)
plan_makespan = Gavel(makespan, by_share=True)
plan_max_sum = Gavel(max_sum)
plan_queue = Gavel(max_min, by_queue=True)

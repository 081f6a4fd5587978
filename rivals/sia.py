"""Sia (Jayaram Subramanya et al., SOSP 2023): one integer program over (GPU type, count).

Goodput without batch size tuning is throughput. A job's row is divided by its smallest entry and
multiplied by the fewest GPUs of the row (N_min); a running job's entries other than the present one
are multiplied by the restart factor ``(T - N S) / (T + S)`` with its age T, its number of restarts
N and the cost S of a restart; there is no factor while T < S. A job that is still restarting keeps
its GPUs, as in the authors' simulator (siasosp23/artifacts, ``preserve_ckpt_allocs``). With p < 0
the program is

    min  sum_ij X_ij (r_ij G_ij)^p + lambda_n (number of jobs without resources)

where GPUs are counted by type. Servers are found afterwards, which may fail, since jobs that one
server can hold are not split over several. Plans are only made at a round's start.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar

import numpy as np
from hops_rivals.knapsack import choose as choose_columns
from hops_rivals.state_space import Items

from hopsd.core.queue.competing import competing_jobs
from hopsd.core.queue.priority import queue
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId
from hopsd.model.job import Job
from hopsd.model.plan import Plan, PlanSettings, PlanStatus, PriorityName, Snapshot
from hopsd.model.reason import Reason, ReasonCode
from hopsd.policies.placing import Servers

POWER = -0.5
LAMBDA = 1.1
GAP = 1e-4
MIN_FACTOR = 1e-3
"""Restart factor of a job that spent all its time on restarts; the paper's would be <= 0."""


@dataclass(frozen=True, slots=True)
class GpuConfiguration:
    """One column of the program. Choosing it adds ``cost``, which is below 0 if useful."""

    job: int
    gpu_type: GpuType
    gpus: int
    cost: float


@dataclass(frozen=True, slots=True)
class Sia:
    """The Sia policy.

    With ``own_sizes``, every requirement of a job is a configuration, and jobs are placed in the
    order of their latency ratio, as the Hops paper ran it (section 4.2). Otherwise it is as
    published: powers of two within a server and whole servers, large jobs placed first.
    """

    only_first: ClassVar[bool] = True
    own_sizes: bool = False

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:
        if not snapshot.round.first:
            return Plan(placements={})
        servers = Servers(snapshot)
        competing = competing_jobs(snapshot)
        kept_allocations = {}
        for job in competing:
            if restarting(snapshot.now, job) and servers.holds(job.running):
                servers.take(job.running)
                kept_allocations[job.id] = job.running
        jobs = [job for job in competing if job.id not in kept_allocations]
        options = self.options(snapshot, servers, jobs)
        capacity = _capacity(snapshot, servers)
        selection, goodput, goodput_bound = choose(options, capacity, settings.time_limit_seconds)
        if self.own_sizes:
            by_latency_ratio = replace(settings, priority=PriorityName.LATENCY_RATIO)
            rank = {job.id: i for i, job in enumerate(queue(snapshot, by_latency_ratio).jobs)}
            selection.sort(key=lambda o: rank.get(jobs[o.job].id, len(rank)))
        else:
            selection.sort(key=lambda o: (-o.gpus, o.job))
        placements = _place(servers, jobs, selection)
        used_gpus = sum(allocation.gpus for allocation in placements.values())
        return Plan(
            placements=kept_allocations | placements,
            objective=goodput,
            upper_bound=goodput_bound,
            gap=(gap := (goodput_bound - goodput) / goodput_bound if goodput_bound > 0 else 0.0),
            status=PlanStatus.WITHIN_GAP if gap <= GAP else PlanStatus.TIME_LIMIT,
            configurations=len(options),
            fragments=servers.left - used_gpus if len(placements) < len(jobs) else 0,
            waiting=_reasons(jobs, options, selection, placements),
        )

    def options(
        self, snapshot: Snapshot, servers: Servers, jobs: Sequence[Job]
    ) -> list[GpuConfiguration]:
        """List every (type, count) that each job may take on an idle cluster: Sia's counts, or all
        counts of a job that fits none of those.
        """
        largest: dict[GpuType, int] = {}
        for node in snapshot.nodes:
            largest[node.gpu_type] = max(node.gpus, largest.get(node.gpu_type, 0))
        options = []
        for i, job in enumerate(jobs):
            shapes = [(t, g) for t in largest for g in self._sizes(job, largest[t])]
            rates = _rates(servers, job, shapes) or _rates(servers, job, product(largest, job.reqs))
            unit = min(rates.values(), default=0.0) / min((g for _, g in rates), default=1)
            today = (servers.type_of(job.running), job.running.gpus)
            factor = restart_factor(snapshot.now, job)
            for shape, rate in rates.items():
                gain = rate / unit * (1.0 if shape == today else factor)
                options.append(GpuConfiguration(i, *shape, gain**POWER - LAMBDA))
        return options

    def _sizes(self, job: Job, server: int) -> Sequence[int]:
        """Those of Sia's counts that the job accepts; if there are none, all that it accepts."""
        if self.own_sizes:
            return job.reqs
        sizes = [g for g in job.reqs if g % server == 0 or (g < server and g & (g - 1) == 0)]
        return sizes or job.reqs


def _rates(
    servers: Servers, job: Job, shapes: Iterable[tuple[GpuType, int]]
) -> dict[tuple[GpuType, int], float]:
    """Samples per second in the shapes that an idle cluster could hold."""
    return {shape: rate for shape in shapes if (rate := servers.rate_on(job, *shape)) > 0}


def restart_factor(now: float, job: Job) -> float:
    """(T - N S) / (T + S) for a running job; 1 if it has nothing to lose or T < S."""
    age = max(0.0, now - job.submit)
    if not job.running or age < job.restart_seconds or job.restart_seconds <= 0.0:
        return 1.0
    restart_seconds = job.restarts * job.restart_seconds
    return max(MIN_FACTOR, (age - restart_seconds) / (age + job.restart_seconds))


def restarting(now: float, job: Job) -> bool:
    """Whether the job holds GPUs but has not begun to train on them."""
    start = job.running_since
    return start is not None and job.restarts > 0 and now - start < job.restart_seconds


def choose(
    options: Sequence[GpuConfiguration], capacity: dict[GpuType, int], time_limit_seconds: float
) -> tuple[list[GpuConfiguration], float, float]:
    """Choose at most one option per job within every type's GPUs, at the least cost.

    Also returns the goodput, which is the negative cost, and an upper bound on it.
    """
    types = {gpu_type: i for i, gpu_type in enumerate(capacity)}
    _, jobs = np.unique([o.job for o in options], return_inverse=True)
    items = Items(
        job=jobs,
        kind=np.array([types[o.gpu_type] for o in options], dtype=np.int64),
        size=np.array([o.gpus for o in options], dtype=np.int64),
        cost=np.array([o.cost for o in options], dtype=np.float64),
        capacity=np.array(list(capacity.values()), dtype=np.int64),
    )
    selection = choose_columns(items, GAP, time_limit_seconds)
    return [options[i] for i in selection.columns.tolist()], -selection.cost, -selection.bound


def _capacity(snapshot: Snapshot, servers: Servers) -> dict[GpuType, int]:
    capacity = dict.fromkeys(servers.types, 0)
    for node in snapshot.nodes:
        capacity[node.gpu_type] += servers.idle[node.name]
    return capacity


def _place(
    servers: Servers, jobs: Sequence[Job], selection: Sequence[GpuConfiguration]
) -> dict[JobId, Allocation]:
    """Place jobs, keeping those that can stay, or all anew if that places more GPUs."""
    placements = _place_once(servers.copy(), jobs, selection, keep=True)
    requested_gpus = sum(option.gpus for option in selection)
    if sum(a.gpus for a in placements.values()) == requested_gpus:
        return placements
    fresh = _place_once(servers.copy(), jobs, selection, keep=False)
    return max(placements, fresh, key=lambda p: sum(a.gpus for a in p.values()))


def _place_once(
    servers: Servers, jobs: Sequence[Job], selection: Sequence[GpuConfiguration], *, keep: bool
) -> dict[JobId, Allocation]:
    placements: dict[JobId, Allocation] = {}
    for option in selection if keep else ():
        running = jobs[option.job].running
        stays = running.gpus == option.gpus and servers.type_of(running) == option.gpu_type
        if stays and servers.holds(running):
            servers.take(running)
            placements[jobs[option.job].id] = running
    for option in selection:
        job = jobs[option.job]
        if job.id not in placements:
            allocation = servers.fastest(job, option.gpus, [option.gpu_type], split=False)
            if allocation is not None:
                servers.take(allocation)
                placements[job.id] = allocation
    return placements


def _reasons(
    jobs: Sequence[Job],
    options: Sequence[GpuConfiguration],
    selection: Sequence[GpuConfiguration],
    placements: dict[JobId, Allocation],
) -> dict[JobId, Reason]:
    jobs_with_options = {option.job for option in options}
    selected_options = {candidate.job: candidate for candidate in selection}
    reasons = {}
    for i, job in enumerate(jobs):
        if job.id in placements:
            continue
        if i not in jobs_with_options:
            text, code = "no GPU type that it can use can hold it", ReasonCode.NO_CONFIGURATION
        elif i in selected_options:
            option = selected_options[i]
            text = f"{option.gpus} GPUs of {option.gpu_type} were free, but on unsuitable servers"
            code = ReasonCode.LOST_TO_OTHERS
        else:
            text, code = "other jobs gain more from the GPUs", ReasonCode.LOST_TO_OTHERS
        reasons[job.id] = Reason(code, text)
    return reasons


plan = Sia()
plan_own_sizes = Sia(own_sizes=True)

"""Simulates jobs that take turns on GPUs within a round, task by task, as Hare schedules them.

In the other simulations a GPU stays with a job until a plan takes it away, and every change is a
restart. Here a job's process stays on the GPU while others train, and resumes within
``switch_seconds``. Only its first task on a GPU costs a restart or, in the job's first round, a
first start. A plan is Hare's whole schedule of the remaining work of the present jobs
(``hopsd/policies/hare``). GPUs follow it from task to task until the next plan, which is made when
a round begins or a job arrives.

- A job's scale is its rigid size, the median requirement. Tasks of a round may follow one another
  on a GPU, and be on GPUs of several types and servers.
- A task takes as long as its GPU's type needs when the job trains on as many GPUs as its scale and
  on as many servers as its round. This includes synchronisation: GPUs are not lent meanwhile.
- A round of tasks that has begun is not planned again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median_low
from time import perf_counter

import numpy as np

from hopsd.core.speed.throughput import per_gpu
from hopsd.errors import InputError
from hopsd.model.allocation import Allocation
from hopsd.model.arrays import Floats
from hopsd.model.devices import is_cpu
from hopsd.model.ids import GpuType, NodeName
from hopsd.model.scenario import Cluster, Server, Workload, WorkloadJob
from hopsd.policies.hare.schedulers import Scheduler, schedule
from hopsd.policies.hare.tasks import Instance, Schedule
from hopsd.sim.engine import PlanMade, Progress, Run, SimulationSettings
from hopsd.sim.metrics import AllocationChange

TASK_SECONDS = 60.0
"""Length of a task on a GPU of the job's fastest type."""

MAX_ROUNDS = 100
"""Maximum rounds of tasks into which remaining work is split; the tasks of long jobs are longer."""

INTERVALS = 6
"""Intervals of the relaxation, as for plans of whole rounds."""


@dataclass(eq=False, slots=True)
class _Training:
    """``speeds``: samples per second of a task on a GPU of each type, with as few servers as
    possible; ``sync_time``: when the last round of tasks is over; ``gpus_used``: GPUs on which the
    job has a process.
    """

    spec: WorkloadJob
    scale: int
    speeds: Floats
    remaining: float
    sync_time: float
    gpus_used: set[_Gpu] = field(default_factory=set)
    holds: list[tuple[float, float, NodeName]] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class _Gpu:
    """``last`` is the job that trained on the GPU last."""

    server: Server
    kind: int
    free: float = 0.0
    last: _Training | None = None


@dataclass(frozen=True, slots=True)
class _Round:
    """A round of a job's tasks: its ``number`` in the plan, the ``samples`` of each task, the
    number of ``servers`` used, the time when the job is ``ready`` for it, and how long a process
    takes that has to start for it.
    """

    number: int
    samples: float
    servers: int
    ready: float
    start_seconds: float


class LaneSimulation:
    """Simulates a workload under one of Hare's schedulers. ``run`` may be called once."""

    def __init__(
        self,
        cluster: Cluster,
        workload: Workload,
        scheduler: Scheduler,
        settings: SimulationSettings,
        switch_seconds: float,
        progress: Progress | None = None,
    ) -> None:
        """Of ``settings``, only the rounds' length, the horizon, and the times of restarts and
        first starts are used.

        Raises:
            InputError: if a job's tasks cannot take turns; the message says why.
        """
        self._workload, self._scheduler = workload, scheduler
        self._settings, self._switch = settings, switch_seconds
        self._progress = progress
        servers = [server for server in cluster.servers if not is_cpu(server.gpu_type)]
        self._types = list(dict.fromkeys(server.gpu_type for server in servers))
        self._largest = {t: max(s.gpus for s in servers if s.gpu_type == t) for t in self._types}
        self._gpus = [
            _Gpu(server, self._types.index(server.gpu_type))
            for server in servers
            for _ in range(server.gpus)
        ]
        self._jobs = [self._training(spec) for spec in workload.jobs]
        self._plans: list[PlanMade] = []

    def run(self) -> Run:
        """Run the workload to its end, or to the settings' horizon."""
        began = perf_counter()
        length = self._settings.round_seconds
        rounds: list[float] = []
        submits = sorted({job.spec.submit for job in self._jobs})
        index = math.floor(submits[0] / length) if submits else 0
        now = index * length
        unfinished_jobs = list(self._jobs)
        while unfinished_jobs and now < self._settings.horizon:
            start, end = index * length, (index + 1) * length
            rounds += [start] if now == start else []
            end_time = min([end, *(s for s in submits if s > now)])
            present = [job for job in unfinished_jobs if job.spec.submit <= now]
            if present:
                self._plan(present, now, end_time)
            unfinished_jobs = [job for job in unfinished_jobs if job.remaining > 0.0]
            if self._progress is not None:
                self._progress(now, len(self._jobs) - len(unfinished_jobs), len(self._jobs))
            now, index = end_time, index + (end_time == end)
        changes = sorted(
            (change for job in self._jobs for change in _timeline(job)), key=lambda c: c.time
        )
        return Run(
            tuple(changes),
            tuple(rounds),
            tuple(self._plans),
            len(self._jobs) - len(unfinished_jobs),
            frozenset(job.spec.id for job in unfinished_jobs),
            perf_counter() - began,
        )

    def _training(self, spec: WorkloadJob) -> _Training:
        if spec.phase or not spec.preemptible:
            reason = "waits for others of its app" if spec.phase else "may not be preempted"
            raise InputError(f"job {spec.id} {reason}: its tasks cannot take turns with others'")
        tables = self._workload.throughput[spec.workload]
        gpus = sum(self._types[gpu.kind] in tables for gpu in self._gpus)
        feasible_counts = [k for k in spec.reqs if k <= gpus]
        if not feasible_counts:
            raise InputError(f"job {spec.id} fits nowhere, even on an idle cluster")
        scale = median_low(feasible_counts)
        if scale > 1 and not all(tables[t].distributed for t in self._types if t in tables):
            raise InputError(
                f"job {spec.id} cannot train on several servers: its tasks cannot take turns"
            )
        speeds = [self._speed(spec, t, scale, -(-scale // self._largest[t])) for t in self._types]
        return _Training(spec, scale, np.array(speeds), spec.samples, spec.submit)

    def _speed(self, spec: WorkloadJob, gpu_type: GpuType, scale: int, servers: int) -> float:
        """Samples per second per GPU with ``scale`` GPUs on ``servers`` servers; 0: cannot run."""
        table = self._workload.throughput[spec.workload].get(gpu_type)
        return 0.0 if table is None else per_gpu(table, scale, servers)

    def _plan(self, jobs: Sequence[_Training], now: float, until: float) -> None:
        """Make a schedule, and carry out the rounds of tasks that begin before ``until``."""
        began = perf_counter()
        instance = self._instance(jobs, now)
        task_schedule = schedule(instance, self._scheduler, INTERVALS)
        total = task_schedule.weighted_completion(instance)
        seconds = perf_counter() - began
        begun_tasks = self._play(jobs, instance, task_schedule, now, until)
        self._plans.append(
            PlanMade(now, seconds, 1.0 - task_schedule.lower_bound / total, begun_tasks)
        )

    def _instance(self, jobs: Sequence[_Training], now: float) -> Instance:
        """Express the remaining work of ``jobs`` as tasks, in seconds from ``now``."""
        remaining, scale = np.array([j.remaining for j in jobs]), np.array([j.scale for j in jobs])
        speeds = np.array([j.speeds for j in jobs])
        pieces = remaining / (scale * speeds.max(axis=1) * TASK_SECONDS)
        rounds = np.clip(np.ceil(pieces), 1, MAX_ROUNDS).astype(np.int64)
        with np.errstate(divide="ignore"):
            train = (remaining / (scale * rounds))[:, None] / speeds
        return Instance(
            arrival=np.array([max(0.0, j.sync_time - now) for j in jobs]),
            weight=np.ones(len(jobs)),
            rounds=rounds,
            scale=scale,
            train=train,
            sync=np.zeros_like(train),
            gpu_type=np.array([gpu.kind for gpu in self._gpus]),
            free_from=np.array([max(0.0, gpu.free - now) for gpu in self._gpus]),
        )

    def _play(
        self,
        jobs: Sequence[_Training],
        instance: Instance,
        task_schedule: Schedule,
        now: float,
        until: float,
    ) -> int:
        """Let GPUs train their tasks in the schedule's order; return how many rounds begin."""
        first, scale = instance.first_task.tolist(), instance.scale.tolist()
        owner, round_of = instance.job_of_task.tolist(), instance.round_of_task.tolist()
        place = task_schedule.gpu.tolist()
        rounds = instance.rounds.tolist()
        piece = [j.remaining / (k * r) for j, k, r in zip(jobs, scale, rounds, strict=True)]
        current: dict[int, _Round] = {}
        begun_tasks, stopped_jobs = 0, set[int]()
        for task in np.argsort(task_schedule.start, kind="stable").tolist():
            n, gpu = owner[task], self._gpus[place[task]]
            job, r = jobs[n], round_of[task]
            if n in stopped_jobs:
                continue
            if n not in current or r != current[n].number:
                if max(now, job.sync_time, gpu.free) >= until:
                    stopped_jobs.add(n)
                    continue
                round_tasks = place[first[n] + r * scale[n] : first[n] + (r + 1) * scale[n]]
                servers = len({self._gpus[m].server.name for m in round_tasks})
                current[n] = _Round(r, piece[n], servers, job.sync_time, self._start_seconds(job))
                last = r + 1 == rounds[n]
                job.remaining = 0.0 if last else job.remaining - piece[n] * scale[n]
                begun_tasks += 1
            self._train(job, gpu, current[n], now)
        return begun_tasks

    def _train(self, job: _Training, gpu: _Gpu, task: _Round, now: float) -> None:
        """Train one task, not before ``now``, after the start or switch that it needs."""
        change = hidden_seconds = 0.0
        if gpu not in job.gpus_used:
            change = task.start_seconds
            job.gpus_used.add(gpu)
        elif gpu.last is not job:
            change = hidden_seconds = self._switch  # in the GPU's idle time
        held_from = max(now, gpu.free, task.ready - hidden_seconds)
        name = gpu.server.name
        factors = self._workload.server_factor.get(job.spec.workload, {})
        speed = self._speed(job.spec, gpu.server.gpu_type, job.scale, task.servers)
        end = held_from + change + task.samples / (speed * factors.get(name, 1.0))
        job.holds.append((held_from, end, name))
        job.sync_time = max(job.sync_time, end)
        gpu.free, gpu.last = end, job

    def _start_seconds(self, job: _Training) -> float:
        """How long a process takes to start in the job's next round."""
        cluster = self._settings.cluster
        return cluster.restart_of(job.spec) if job.holds else cluster.profiling_seconds


def _timeline(job: _Training) -> Iterator[AllocationChange]:
    """Yield the job's allocation at each time when it changes."""
    moments: dict[float, Counter[NodeName]] = {}
    for start, end, server in job.holds:
        moments.setdefault(start, Counter())[server] += 1
        moments.setdefault(end, Counter())[server] -= 1
    gpus_by_node: Counter[NodeName] = Counter()
    for moment in sorted(moments):
        change = moments[moment]
        if any(change.values()):
            gpus_by_node.update(change)
            yield AllocationChange(moment, job.spec.id, Allocation.of(gpus_by_node))

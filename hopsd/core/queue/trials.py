"""Trials of shapes that were never measured, by optimism in the face of uncertainty.

Where the top of an estimate's spread promises clearly more than a job has, one round plans the job
with that instead of the estimate, once for each workload and shape. Trials are bounded: a share of
the rounds, and of the cluster's GPUs in such a round. One GPU alone is for profile runs to measure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from hopsd.core.placement.contract import in_one, may_spread
from hopsd.core.placement.pools import Pools, pools_of
from hopsd.core.placement.sensitivity import sensitivity_on
from hopsd.core.queue.competing import competes
from hopsd.core.speed.throughput import configuration_throughput, per_gpu
from hopsd.model.ids import GpuType, JobId, NodeName, WorkloadName, job_order
from hopsd.model.job import ByShape, Job, Shape
from hopsd.model.knowledge import Knowledge
from hopsd.model.plan import Plan, Snapshot
from hopsd.model.reason import count_of

Tried = tuple[WorkloadName, GpuType, Shape]
"""What is tried once."""


@dataclass(frozen=True, slots=True)
class TrialSettings:
    """``every``: of so many rounds one has trials, on at most ``share`` of all GPUs. ``gain``: the
    least ratio of what is hoped for to the estimate, and to the best that the job could have
    otherwise with as many GPUs.
    """

    enabled: bool = False
    share: float = 0.25
    every: int = 4
    gain: float = 1.25


@dataclass(frozen=True, slots=True)
class Trial:
    """``job`` tries ``shape`` for its workload. In samples/s of the whole job: ``expected`` and
    ``hoped``, the estimate and the top of its spread; ``otherwise``, its best without the trial.
    """

    job: JobId
    workload: WorkloadName
    gpu_type: GpuType
    shape: Shape
    expected: float
    hoped: float
    otherwise: float

    @property
    def key(self) -> Tried:
        return self.workload, self.gpu_type, self.shape

    @property
    def note(self) -> str:
        """What the job's user should know."""
        gpus, nodes = self.shape
        return (
            f"it tries {count_of(gpus, 'GPUs')} on {count_of(nodes, 'servers')} of type"
            f" {self.gpu_type} once: its workload was never measured there, is expected to reach"
            f" {self.expected:.3g} samples/s and might reach {self.hoped:.3g}, against"
            f" {self.otherwise:.3g} otherwise"
        )


def measured(knowledge: Knowledge) -> set[Tried]:
    """The shapes that any report tells of."""
    return {(r.workload, r.gpu_type, (r.gpus, r.nodes)) for r in knowledge.records}


def trials(
    snapshot: Snapshot,
    workloads: Mapping[JobId, WorkloadName],
    tried: Collection[Tried],
    settings: TrialSettings,
    sigma: float,
) -> tuple[Trial, ...]:
    """The trials that this plan may begin, at most one for each job and for each of :data:`Tried`.

    ``workloads``: of the jobs that may try something: they can restart without losing work, and
    their speed is reported. ``sigma``: the plan's, for spreading. The order of the jobs changes
    nothing.
    """
    index = int(snapshot.now // snapshot.round.seconds) if snapshot.round.seconds > 0 else 0
    if not settings.enabled or not snapshot.round.first or index % settings.every:
        return ()
    types = {node.name: node.gpu_type for node in snapshot.nodes}
    pools = pools_of(snapshot.nodes)
    left = settings.share * sum(node.gpus for node in snapshot.nodes)
    closed = {*tried, *_held(snapshot, workloads, types)}
    jobs = [job for job in snapshot.jobs if job.id in workloads and competes(job, first=True)]
    jobs.sort(key=lambda job: job_order(job.id))
    if jobs:  # No job comes first each time: what it hopes for may be what no plan can give it.
        turn = index // settings.every % len(jobs)
        jobs = jobs[turn:] + jobs[:turn]
    found = []
    for job in jobs:
        hopes = [
            trial
            for trial in _hopes(job, workloads[job.id], pools, types, settings, sigma)
            if trial.key not in closed and trial.shape[0] <= left
        ]
        if hopes:
            best = max(hopes, key=lambda trial: trial.hoped / trial.otherwise)
            found.append(best)
            closed.add(best.key)
            left -= best.shape[0]
    return tuple(found)


def hopeful(snapshot: Snapshot, hopes: Iterable[Trial]) -> Snapshot:
    """The snapshot in which each of these jobs is as fast as hoped in the shape that it may try."""
    of_job = {trial.job: trial for trial in hopes}
    if not of_job:
        return snapshot
    jobs = tuple(
        _with_hope(job, of_job[job.id]) if job.id in of_job else job for job in snapshot.jobs
    )
    return replace(snapshot, jobs=jobs)


def begun(plan: Plan, snapshot: Snapshot, hopes: Iterable[Trial]) -> tuple[Plan, tuple[Trial, ...]]:
    """The trials that ``plan`` begins; and the plan with these jobs' estimates for its hopes."""
    types = {node.name: node.gpu_type for node in snapshot.nodes}
    found = tuple(
        trial
        for trial in hopes
        if (given := plan.placements.get(trial.job))
        and (given.gpus, len(given.parts)) == trial.shape
        and {types[name] for name in given.nodes} == {trial.gpu_type}
    )
    numbers = dict(plan.jobs)
    for trial in found:
        own = numbers.get(trial.job)
        if own is not None and own.throughput is not None:
            rate = own.throughput * trial.expected / trial.hoped
            numbers[trial.job] = replace(own, throughput=rate)
    return (replace(plan, jobs=numbers) if found else plan), found


def _held(
    snapshot: Snapshot,
    workloads: Mapping[JobId, WorkloadName],
    types: Mapping[NodeName, GpuType],
) -> Iterator[Tried]:
    """The shapes in which a job runs now: its reports tell of them soon."""
    for job in snapshot.jobs:
        if job.running and job.id in workloads:
            shape = job.running.gpus, len(job.running.parts)
            for gpu_type in {types[name] for name in job.running.nodes}:
                yield workloads[job.id], gpu_type, shape


def _hopes(
    job: Job,
    workload: WorkloadName,
    pools: Pools,
    types: Mapping[NodeName, GpuType],
    settings: TrialSettings,
    sigma: float,
) -> Iterator[Trial]:
    """What the job could try, each shape on the fewest servers of a type."""
    speeds: dict[tuple[GpuType, Shape], float] = {}
    rho = sensitivity_on(job, pools)
    for pool in pools.values():
        table = job.throughput.get(pool.gpu_type)
        if table is None:
            continue
        spreads = may_spread(job, pool.gpu_type, pool.largest, rho, sigma)
        for gpus in job.rules.counts(job.reqs):
            nodes = -(-gpus // pool.largest)
            fits = in_one(job.rules, gpus) if nodes == 1 else spreads and gpus <= pool.gpus
            if fits and job.rules.enough(pool.gpu_type, gpus):
                rate = gpus * per_gpu(table, gpus, nodes)
                speeds[pool.gpu_type, (gpus, nodes)] = rate
    present = configuration_throughput(job, job.running, types) if job.running else 0.0
    for (gpu_type, shape), expected in speeds.items():
        by_shape = job.throughput[gpu_type].by_shape
        gpus = shape[0]
        if by_shape is None or gpus == 1:
            continue
        others = (
            rate for key, rate in speeds.items() if key[1][0] <= gpus and key != (gpu_type, shape)
        )
        otherwise = max(present, max(others, default=0.0))
        hoped = gpus * by_shape.between(*shape)[1]
        if otherwise and hoped >= settings.gain * max(expected, otherwise):
            yield Trial(job.id, workload, gpu_type, shape, expected, hoped, otherwise)


def _with_hope(job: Job, trial: Trial) -> Job:
    table = job.throughput[trial.gpu_type]
    if table.by_shape is None:
        return job
    hoped = _Hoped(table.by_shape, trial.shape, trial.hoped / trial.shape[0])
    tables = {**job.throughput, trial.gpu_type: replace(table, by_shape=hoped)}
    return replace(job, throughput=tables)


@dataclass(frozen=True, slots=True)
class _Hoped:
    """``speeds`` with ``rate`` for one shape. Implements :class:`hopsd.model.job.ByShape`."""

    speeds: ByShape
    shape: Shape
    rate: float

    def per_gpu(self, gpus: int, nodes: int) -> float:
        """The estimate, or what is hoped for."""
        return self.rate if (gpus, nodes) == self.shape else self.speeds.per_gpu(gpus, nodes)

    def between(self, gpus: int, nodes: int) -> tuple[float, float]:
        """The estimate's."""
        return self.speeds.between(gpus, nodes)

    def source(self, gpus: int, nodes: int) -> str:
        """The estimate's."""
        return self.speeds.source(gpus, nodes)

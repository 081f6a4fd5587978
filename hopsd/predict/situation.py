"""Represents the current state of all jobs as the arrays from which a playout starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median_low

import numpy as np

from hopsd.core.placement.pools import Pool, Pools, RunnableFilter, pools_of
from hopsd.core.queue.priority import ages, mean_count
from hopsd.core.queue.run_time import Expectation
from hopsd.core.speed.speed_answer import ASSUMED
from hopsd.core.speed.throughput import configuration_throughput, per_gpu
from hopsd.model.allocation import Allocation
from hopsd.model.arrays import Bools, Floats
from hopsd.model.ids import GpuType, JobId, NodeName
from hopsd.model.job import Job, JobState, Node
from hopsd.model.plan import Snapshot
from hopsd.predict.capacity import NO_CHANGE, Capacity
from hopsd.predict.limit_share import USUAL_SHARE, USUAL_SPREAD

MAX_COUNTS = 8
"""Maximum number of GPU counts per job; if it has more, evenly spaced ones are used."""

Z80 = 1.2815515655446004
"""80 % of a standard normal distribution lie between minus this and plus this."""


class RunTimeSource(StrEnum):
    """The source of a job's run time."""

    SAMPLES = "samples"
    PAST_RUNS = "past runs"
    TIME_LIMIT = "time limit"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Situation:
    """The present jobs. Arrays are (jobs,) unless stated otherwise; seconds are relative to
    ``now``. The unit of work is a second with the mean GPU count.

    - ``counts`` (jobs, :data:`MAX_COUNTS`): GPU counts, ascending, with the last one repeated.
      ``rates``, same shape: work per second with each count. ``rigid_by_type``: work per second
      with the rigid count, by GPU type.
    - ``remaining_work``: its median. ``spread``: standard deviation of its logarithm. ``work_cap``:
      work at which the time limit ends the job, infinity without a limit. ``allotment``: seconds
      requested.
    - ``running``: where each job runs. ``gpus_held``: GPUs it runs on. ``rate``: its work per
      second on them.
    - ``competes``: whether the job may start or move; not if no idle cluster could hold it.
      ``fits_now``: whether idle GPUs could hold it with its smallest count, server by server.
    - ``round_left``: seconds until the round ends. ``bounds``: limits that hold jobs back now or
      later. ``capacity``: known changes in capacity that hops' jobs do not cause.
    """

    now: float
    gpus: int
    round_left: float
    round_seconds: float
    ids: tuple[JobId, ...]
    counts: Floats
    rates: Floats
    rigid: Floats
    rigid_rate: Floats
    remaining_work: Floats
    spread: Floats
    work_cap: Floats
    allotment: Floats
    gpus_held: Floats
    rate: Floats
    age: Floats
    waiting_time: Floats
    ran: Floats
    attained_service: Floats
    submit: Floats
    restart: Floats
    started: Bools
    competes: Bools
    is_pinned: Bools
    fits_now: Bools
    sources: tuple[RunTimeSource, ...]
    progress: tuple[float | None, ...]
    nodes: tuple[Node, ...]
    running: tuple[Allocation, ...]
    rigid_by_type: tuple[Mapping[GpuType, float], ...]
    bounds: tuple[Bound, ...] = ()
    capacity: Capacity = NO_CHANGE


@dataclass(frozen=True, slots=True)
class Bound:
    """A limit: its ``members`` together hold at most ``gpus``, where each GPU counts ``per_gpu``,
    and at most ``count`` of them run; infinity means no bound. ``exempt`` jobs start nevertheless.
    Arrays are (jobs,).
    """

    members: Bools
    exempt: Bools
    per_gpu: Floats
    gpus: float
    count: float


def situation_of(
    snapshot: Snapshot,
    expected: Mapping[JobId, Expectation],
    round_end: float,
    round_seconds: float,
    capacity: Capacity = NO_CHANGE,
) -> Situation:
    """The situation in a snapshot; ``expected`` are run times that users did not declare."""
    jobs = snapshot.jobs
    pools = pools_of(snapshot.nodes)
    types = {node.name: node.gpu_type for node in snapshot.nodes}
    age = ages(jobs, snapshot.nodes)
    idle = _Idle(snapshot.nodes)
    could_run = RunnableFilter(pools)
    nodes_return = any(gpus > 0 for _, gpus in capacity.changes)
    speeds: dict[object, _Speeds] = {}
    rows = []
    for job in jobs:
        key = id(job.throughput), job.reqs, job.rules.min_gpus
        if key not in speeds:
            speeds[key] = _speeds(job, pools)
        rows.append(_row(job, speeds[key], age[job.id], expected.get(job.id), types))

    def column(position: int) -> Floats:
        return np.array([row.numbers[position] for row in rows], dtype=np.float64)

    def table(values: Sequence[Sequence[float]]) -> Floats:
        return np.array(values, dtype=np.float64).reshape(len(rows), MAX_COUNTS)

    return Situation(
        now=snapshot.now,
        gpus=sum(node.idle for node in snapshot.nodes)
        + sum(gpus for job in jobs for node, gpus in job.running if node in types),
        round_left=max(0.0, round_end - snapshot.now),
        round_seconds=round_seconds,
        ids=tuple(job.id for job in jobs),
        counts=table([row.counts for row in rows]),
        rates=table([row.rates for row in rows]),
        rigid=column(0),
        rigid_rate=column(1),
        remaining_work=column(2),
        spread=column(3),
        work_cap=column(4),
        allotment=column(5),
        rate=column(6),
        gpus_held=np.array([job.running.gpus for job in jobs], dtype=np.float64),
        age=np.array([age[job.id] for job in jobs], dtype=np.float64),
        waiting_time=np.array([job.wait_seconds for job in jobs], dtype=np.float64),
        ran=np.array([job.run_seconds for job in jobs], dtype=np.float64),
        attained_service=np.array([job.attained_gpu_seconds for job in jobs], dtype=np.float64),
        submit=np.array([job.submit - snapshot.now for job in jobs], dtype=np.float64),
        restart=np.array([job.restart_seconds for job in jobs], dtype=np.float64),
        started=np.array([bool(job.running) or job.run_seconds > 0.0 for job in jobs], dtype=bool),
        competes=np.array(
            [
                job.state is JobState.WAITING
                and (
                    bool(job.running)
                    or (rows[i].numbers[0] > 0.0 and (nodes_return or could_run(job)))
                )
                for i, job in enumerate(jobs)
            ],
            dtype=bool,
        ),
        is_pinned=np.array([not job.preemptible for job in jobs], dtype=bool),
        fits_now=np.array(
            [idle.holds(job, row.counts[0]) for job, row in zip(jobs, rows, strict=True)],
            dtype=bool,
        ),
        sources=tuple(row.source for row in rows),
        progress=tuple(row.progress for row in rows),
        nodes=snapshot.nodes,
        running=tuple(job.running for job in jobs),
        rigid_by_type=tuple(row.by_type for row in rows),
        bounds=tuple(_bounds(snapshot)),
        capacity=capacity,
    )


def _bounds(snapshot: Snapshot) -> Iterator[Bound]:
    """Yield the limits that all jobs together exceed, even with their smallest counts."""
    jobs = snapshot.jobs
    for limit in snapshot.limits:
        members = np.array([job.id in limit.jobs for job in jobs], dtype=bool)
        held_gpus = sum(
            limit.amount(job.id, job.running.gpus or min(job.reqs, default=0))
            for job in jobs
            if job.id in limit.jobs
        )
        if (limit.gpus is not None and held_gpus > limit.gpus) or (
            limit.count is not None and members.sum() > limit.count
        ):
            yield Bound(
                members,
                np.array([job.id in limit.exempt for job in jobs], dtype=bool),
                np.array([limit.per_gpu.get(job.id, 1) for job in jobs], dtype=np.float64),
                np.inf if limit.gpus is None else float(limit.gpus),
                np.inf if limit.count is None else float(limit.count),
            )


class _Idle:
    """Idle GPUs of each type: the maximum on one server, and the total."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._by_nodes: dict[frozenset[NodeName] | None, dict[GpuType, tuple[int, int]]] = {}

    def holds(self, job: Job, count: float) -> bool:
        """Whether ``count`` GPUs of one type are idle where the job may run."""
        idle = self._idle_by_type(job.rules.nodes)
        return count > 0.0 and any(
            gpu_type in idle
            and (
                count <= idle[gpu_type][0]
                or (bool(table.distributed) and count <= idle[gpu_type][1])
            )
            for gpu_type, table in job.throughput.items()
        )

    def _idle_by_type(self, names: frozenset[NodeName] | None) -> Mapping[GpuType, tuple[int, int]]:
        if names not in self._by_nodes:
            idle: dict[GpuType, tuple[int, int]] = {}
            for node in self._nodes:
                if names is None or node.name in names:
                    largest, total = idle.get(node.gpu_type, (0, 0))
                    idle[node.gpu_type] = max(largest, node.idle), total + node.idle
            self._by_nodes[names] = idle
        return self._by_nodes[names]


@dataclass(frozen=True, slots=True)
class _Row:
    """Values of one job. ``numbers``: rigid count, its rate, remaining work, spread, work cap,
    allotment, rate.
    """

    numbers: tuple[float, ...]
    counts: Sequence[float]
    rates: Sequence[float]
    source: RunTimeSource
    progress: float | None
    by_type: Mapping[GpuType, float]


@dataclass(frozen=True, slots=True)
class _Speeds:
    """GPU counts and, for each, samples per second on the mean type; the rigid count and its
    samples per second, also by type.
    """

    counts: Sequence[float]
    speeds: Sequence[float]
    rigid: float = 0.0
    rigid_speed: float = 0.0
    by_type: Mapping[GpuType, float] = field(default_factory=dict)


def _speeds(job: Job, pools: Pools) -> _Speeds:
    by_count: dict[int, float] = {}
    for count in job.reqs:
        speeds = [
            (pool.gpus, speed)
            for pool in pools.values()
            if (speed := _speed_on(job, pool, count)) > 0.0
        ]
        if speeds:
            by_count[count] = sum(gpus * speed for gpus, speed in speeds) / sum(
                g for g, _ in speeds
            )
    if not by_count:
        return _Speeds([0.0] * MAX_COUNTS, [0.0] * MAX_COUNTS)
    counts = sorted(by_count)
    if len(counts) > MAX_COUNTS:
        positions = np.linspace(0, len(counts) - 1, MAX_COUNTS).round().astype(int)
        counts = [counts[i] for i in positions.tolist()]
    counts += counts[-1:] * (MAX_COUNTS - len(counts))
    rigid = median_low(sorted(by_count))
    return _Speeds(
        [float(c) for c in counts],
        [by_count[c] for c in counts],
        float(rigid),
        by_count[rigid],
        {t: speed for t, pool in pools.items() if (speed := _speed_on(job, pool, rigid)) > 0.0},
    )


def _speed_on(job: Job, pool: Pool, count: int) -> float:
    """Samples per second with ``count`` GPUs of a type; 0 if the job cannot run there."""
    table = job.throughput.get(pool.gpu_type)
    if table is None or not job.rules.enough(pool.gpu_type, count) or count > pool.gpus:
        return 0.0
    servers = 1 if count <= pool.largest else -(-count // pool.largest)
    if servers > 1 and not table.distributed and table.by_shape is None:
        return 0.0
    return per_gpu(table, count, servers) * count


def _speed_is_known(job: Job) -> bool:
    """Whether a speed was measured or declared; otherwise, samples give no run time."""
    return any(
        table.source_of(min(job.reqs, default=1), 1) != ASSUMED for table in job.throughput.values()
    )


def _row(
    job: Job,
    speeds: _Speeds,
    age: float,
    expected: Expectation | None,
    types: Mapping[NodeName, GpuType],
) -> _Row:
    """The values of a job, with work in seconds at its mean count."""
    mean = mean_count(job.reqs)
    unit = float(np.interp(mean, speeds.counts, speeds.speeds)) if speeds.rigid else 0.0
    present = configuration_throughput(job, job.running, types) if job.running else 0.0
    unit = unit or present or 1.0
    limit = job.time_limit_seconds
    cap = np.inf if limit is None else max(0.0, limit - job.run_seconds)
    spread, progress = 0.0, None
    if job.samples is not None and job.samples > 0.0:
        progress = min(1.0, job.samples_done / job.samples)
    if job.samples is not None and _speed_is_known(job):
        source = RunTimeSource.SAMPLES if expected is None else RunTimeSource.PAST_RUNS
        total, progress_seconds = job.samples / unit, job.samples_done / unit
    elif expected is not None and expected.seconds is not None:
        source, total, progress_seconds = RunTimeSource.PAST_RUNS, expected.seconds, job.run_seconds
    elif limit is not None:
        source = RunTimeSource.TIME_LIMIT
        progress_seconds = job.run_seconds
        total = max(limit * USUAL_SHARE, progress_seconds * 1.2)
        spread = USUAL_SPREAD
    else:
        source, total, progress_seconds = RunTimeSource.NOTHING, age, job.run_seconds
        spread = 1.5
    remaining = max(total - progress_seconds, 1e-3 * total, 1e-6)
    if expected is not None and expected.high > expected.low:
        low = max(expected.low * total - progress_seconds, 0.02 * remaining)
        high = max(expected.high * total - progress_seconds, low)
        remaining, spread = float(np.sqrt(low * high)), float(np.log(high / low)) / (2 * Z80)
    allotment = cap if limit is not None else total - progress_seconds
    rate = present / unit if present else (1.0 if job.running else 0.0)
    return _Row(
        (
            speeds.rigid,
            speeds.rigid_speed / unit,
            remaining,
            spread,
            float(cap),
            max(allotment, 1e-6),
            rate,
        ),
        speeds.counts,
        [speed / unit for speed in speeds.speeds],
        source,
        progress,
        {t: speed / unit for t, speed in speeds.by_type.items()},
    )

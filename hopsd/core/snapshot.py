"""Builds a policy's input, the snapshot, from a reading of the cluster."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from hopsd.core.devices import is_cpu, usable
from hopsd.core.placement.available import kept_to_counts
from hopsd.core.placement.pools import Pools, could_run, pools_of
from hopsd.core.placement.shortages import Shortages
from hopsd.core.queue.history import OCCUPYING, eligible
from hopsd.core.queue.priority import mean_count
from hopsd.core.queue.run_time import Asked, Expectation, RunTimes
from hopsd.core.site.limits import limit_rows
from hopsd.core.site.own_bounds import open_partitions, standing, within_site
from hopsd.core.speed.estimator import Estimate, Estimator, EstimatorSettings
from hopsd.core.submission.comment import Comment
from hopsd.core.submission.partitions import Access
from hopsd.core.submission.rules import rules_of
from hopsd.model.allocation import Allocation
from hopsd.model.cluster import Node
from hopsd.model.history import JobRecord
from hopsd.model.ids import GpuType, JobId, NodeName, RackName, WorkloadName
from hopsd.model.job import Job, JobState
from hopsd.model.knowledge import Knowledge
from hopsd.model.plan import RoundInfo, Snapshot
from hopsd.model.reading import Hold, JobReading, NodeReading, Reading, SlurmState
from hopsd.model.reason import Reason
from hopsd.model.rules import ANYWHERE, Rules
from hopsd.model.site import SiteRules


class Unsaved(StrEnum):
    """Whether a job that was not seen to save stays where it runs.

    ``STAYS``: always; ``STAYS_IF_SEEN``: if its reports show that it trains; ``MOVES``: never. A
    job that is warned before it is moved can save then.
    """

    STAYS = "stays"
    STAYS_IF_SEEN = "stays_if_seen"
    MOVES = "moves"


UNSAVED_NOTE = (
    "it is not moved until it has been seen to save once, since it would start over (it asks for no"
    " warning either: --signal, trap)"
)


@dataclass(frozen=True, slots=True)
class SnapshotSettings:
    """``default_age_seconds``: the run time assumed for a job when nothing else is known.

    ``predicted``: whether past runs say how long a job runs that gives no samples; else its time
    limit does, if it has one. ``pinned``: whether ``preempt=no`` is honoured. ``unsaved``: what
    happens to a running job that was not seen to save. ``racks``: by node, where known.
    ``assumed_restart_seconds``: for jobs whose restart was never measured. ``cpus_per_gpu``: cores
    per GPU for jobs that ask for none.
    """

    estimator: EstimatorSettings = field(default_factory=EstimatorSettings)
    default_age_seconds: float = 3600.0
    predicted: bool = True
    restart_cost: bool = True
    assumed_restart_seconds: float = 0.0
    pinned: bool = True
    unsaved: Unsaved = Unsaved.STAYS_IF_SEEN
    racks: Mapping[NodeName, RackName] = field(default_factory=dict)
    cpus_per_gpu: int = 1


@dataclass(frozen=True, slots=True)
class Built:
    """A snapshot with related facts that policies do not need.

    ``pinned``: running jobs that the round must leave where they are. ``notes``: what a job's user
    should know about how it is planned. ``refused``: waiting jobs that Slurm would never start;
    they are not in the snapshot. ``expected``: run times taken from past runs.
    """

    snapshot: Snapshot
    pinned: frozenset[JobId]
    notes: Mapping[JobId, str] = field(default_factory=dict)
    refused: Mapping[JobId, Reason] = field(default_factory=dict)
    expected: Mapping[JobId, Expectation] = field(default_factory=dict)


def build_snapshot(
    reading: Reading,
    records: Mapping[JobId, JobRecord],
    comments: Mapping[JobId, Comment],
    knowledge: Knowledge,
    info: RoundInfo,
    settings: SnapshotSettings,
) -> Built:
    """Build a snapshot: the schedulable nodes and the jobs with a valid comment.

    A running job stays where it is if its user says so, if Slurm may not requeue it, or if one of
    its nodes accepts no new jobs (drained, down), or none of its length (reserved): it may finish
    there.
    """
    nodes = _nodes(reading, settings.racks)
    up = {node.name for node in nodes}
    access = Access(reading, _idle(nodes, reading, info))
    known = _Known(Estimator(nodes, knowledge, settings.estimator, reading.now), nodes)
    pools = pools_of(nodes)
    run_times = RunTimes(knowledge.runs)
    jobs, pinned = [], set()
    notes: dict[JobId, str] = {}
    expected: dict[JobId, Expectation] = {}
    for asked in reading.jobs:
        job = _in_open_partitions(asked, reading.site)
        pins = job.state is SlurmState.RUNNING and (
            _pinned(job, comments.get(job.id), up, settings) or not access.take_back(job)
        )
        unsaved = (
            job.state is SlurmState.RUNNING
            and not pins
            and _unsaved(job, records.get(job.id), settings.unsaved)
        )
        if pins := pins or unsaved:
            pinned.add(job.id)
        if job.id in comments and job.state in (SlurmState.PENDING, SlurmState.RUNNING):
            comment = comments[job.id]
            where = access.nodes(job, min(comment.reqs))
            own_pools = known.pools(where)
            speeds = known.of(records[job.id].workload, own_pools, cpu=comment.cpu)
            reqs, left_out = _within_reach(comment.reqs, speeds, own_pools)
            rules = _rules(job, comment, reading, settings, where)
            texts = (left_out, _fewer_cores(job, rules), UNSAVED_NOTE if unsaved else "")
            if said := [text for text in texts if text]:
                notes[job.id] = "; ".join(said)
            comment = replace(comment, reqs=reqs) if left_out else comment
            found = _expected(job, records[job.id], comment, run_times, settings, reading.now)
            if found is not None:
                expected[job.id] = found
            jobs.append(
                _job(
                    job,
                    records[job.id],
                    comment,
                    up,
                    speeds,
                    found,
                    settings,
                    reading.now,
                    rules,
                    pins=pins,
                )
            )
    shortages = Shortages(knowledge.shortages, reading.now)
    made = []
    for seen in filter(None, jobs):
        kept, short = shortages.avoided(kept_to_counts(seen), records[seen.id].workload, pools)
        made.append(_left_alone(kept, pools))
        if short:
            notes[seen.id] = "; ".join(filter(None, [notes.get(seen.id, ""), short]))
    allowed, refused = _within_site(made, reading)
    pinned |= {job.id for job in allowed if job.running and not job.preemptible}
    snapshot = Snapshot(
        reading.now, info, nodes, tuple(allowed), limits=limit_rows(reading, allowed)
    )
    return Built(snapshot, frozenset(pinned), notes, refused, expected)


def _left_alone(job: Job, pools: Pools) -> Job:
    """Pin a running job whose rules would not let it run anywhere again."""
    if job.running and job.preemptible and job.rules != ANYWHERE and not could_run(job, pools):
        return replace(job, preemptible=False)
    return job


def _within_reach(
    reqs: tuple[int, ...], known: Estimate, pools: Pools
) -> tuple[tuple[int, ...], str]:
    """The counts that the nodes open to the job could hold when idle, and a note about the others.

    The smallest is always kept, so that a reason can be given if the job can run nowhere.
    """
    most = max(
        (
            pool.gpus if table.distributed else pool.largest
            for name, table in known.tables.items()
            if (pool := pools.get(name)) is not None
        ),
        default=0,
    )
    kept = reqs[: max(1, bisect_right(reqs, most))]
    if len(kept) == len(reqs):
        return reqs, ""
    return kept, (
        f"{len(reqs) - len(kept)} of its {len(reqs)} GPU counts, from {reqs[len(kept)]} on, are"
        f" left out: no partition that it may use could hold more than {most}"
    )


def _fewer_cores(job: JobReading, rules: Rules) -> str:
    """A note about cores that the job asks for and does not get."""
    asked = job.asked.cores_per_gpu
    if asked is None or job.asked.exclusive or rules.cores_per_gpu >= float(asked) - 1e-3:
        return ""
    return (
        f"it gets {rules.cores_per_gpu:g} CPU cores with each GPU instead of the {float(asked):g}"
        " that it asks for: no GPU comes with more than its share of its node"
    )


def _within_site(jobs: Sequence[Job], reading: Reading) -> tuple[list[Job], dict[JobId, Reason]]:
    """The jobs with the GPU counts that the site allows, and why others have none. Running jobs are
    left as they are.
    """
    read = {job.id: job for job in reading.jobs}
    largest = max((node.gpus for node in reading.nodes), default=0)
    allowed, refused = [], {}
    for job in jobs:
        where = open_partitions(read[job.id], reading.site)
        found = (
            where
            if isinstance(where, Reason)
            else within_site(
                job,
                replace(read[job.id], partition=where),
                reading.site,
                largest,
                reading.now,
            )
        )
        if isinstance(found, Job):
            allowed.append(replace(found, **standing(read[job.id], reading.site)))
        elif job.running:
            allowed.append(replace(job, preemptible=False))
        else:
            refused[job.id] = found
    return allowed, refused


def _in_open_partitions(job: JobReading, rules: SiteRules) -> JobReading:
    """The job with only those of its partitions whose rules it meets."""
    if "," not in job.partition:
        return job
    where = open_partitions(job, rules)
    return job if isinstance(where, Reason) else replace(job, partition=where)


class _Known:
    """Estimates for jobs on the nodes where they may run, shared by jobs with equal ones."""

    def __init__(self, estimator: Estimator, nodes: Sequence[Node]) -> None:
        self._estimator = estimator
        self._nodes = nodes
        self._pools: dict[frozenset[NodeName], Pools] = {}
        self._found: dict[tuple[WorkloadName, bool, tuple[GpuType, ...]], Estimate] = {}

    def pools(self, where: frozenset[NodeName]) -> Pools:
        """The GPU types of the nodes ``where``."""
        if where not in self._pools:
            self._pools[where] = pools_of(node for node in self._nodes if node.name in where)
        return self._pools[where]

    def of(self, workload: WorkloadName, pools: Pools, *, cpu: bool) -> Estimate:
        key = workload, cpu, tuple(pools)
        if key not in self._found:
            known = self._estimator.estimate(workload)
            tables = {t: table for t, table in usable(known.tables, cpu=cpu).items() if t in pools}
            self._found[key] = replace(known, tables=tables)
        return self._found[key]


def _rules(
    job: JobReading,
    comment: Comment,
    reading: Reading,
    settings: SnapshotSettings,
    where: frozenset[NodeName],
) -> Rules:
    rules = rules_of(
        job,
        [node for node in reading.nodes if node.gpus],
        reading.memory_of(job),
        settings.cpus_per_gpu,
        comment.shape,
        comment.per_node,
    )
    if all(node.name in where for node in reading.nodes if node.gpus):
        return rules
    return replace(rules, nodes=where if rules.nodes is None else where & rules.nodes)


def _idle(nodes: Iterable[Node], reading: Reading, info: RoundInfo) -> dict[NodeName, int]:
    """GPUs that a plan may give, by node; a first plan also those that hops jobs hold."""
    if not info.first:
        return {node.name: node.idle for node in nodes}
    foreign = {node.name: node.foreign_gpus for node in reading.nodes}
    return {node.name: node.gpus - foreign[node.name] for node in nodes}


def _nodes(reading: Reading, racks: Mapping[NodeName, RackName]) -> tuple[Node, ...]:
    """The schedulable nodes."""
    used: dict[NodeName, int] = defaultdict(int)
    for job in reading.jobs:
        if job.state in OCCUPYING:
            for node, gpus in job.allocation:
                used[node] += gpus
    return tuple(
        Node(
            n.name,
            n.gpu_type,
            n.gpus,
            max(0, n.gpus - n.foreign_gpus - used[n.name]),
            racks.get(n.name),
            **_room(n, reading),
        )
        for n in reading.nodes
        if n.usable and n.gpus
    )


def _room(node: NodeReading, reading: Reading) -> dict[str, int | None]:
    """Cores and memory, if Slurm reports what is free. On CPU nodes the cores are the devices."""
    room: dict[str, int | None] = {}
    if node.idle_cores is not None and not is_cpu(node.gpu_type):
        room |= {"cores": node.cores, "idle_cores": node.idle_cores}
    if reading.memory.counted and node.memory_mb and node.idle_memory_mb is not None:
        room |= {"memory_mb": node.memory_mb, "idle_memory_mb": node.idle_memory_mb}
    return room


def _pinned(
    job: JobReading, comment: Comment | None, up: set[NodeName], settings: SnapshotSettings
) -> bool:
    willing = comment is not None and (comment.preempt or not settings.pinned)
    movable = willing and job.requeue
    return not movable or any(node not in up for node in job.allocation.nodes)


def _unsaved(job: JobReading, record: JobRecord | None, rule: Unsaved) -> bool:
    """Whether a job that could otherwise be moved stays until it has saved."""
    warned = job.asked.signal or job.asked.traps is None or job.asked.traps
    if warned or record is None or record.saved or rule is Unsaved.MOVES:
        return False
    return rule is Unsaved.STAYS or record.saved is False


def _job(
    job: JobReading,
    record: JobRecord,
    comment: Comment,
    up: set[NodeName],
    known: Estimate,
    expected: Expectation | None,
    settings: SnapshotSettings,
    now: float,
    rules: Rules,
    *,
    pins: bool,
) -> Job | None:
    """The job as policies see it; None if it runs on unusable nodes only."""
    running = job.allocation
    if running and any(node not in up for node in running.nodes):
        running = Allocation.of({n: g for n, g in running if n in up})
    if job.state is SlurmState.RUNNING and not running:
        return None
    return Job(
        id=job.id,
        user=job.user,
        submit=record.submit,
        wait_seconds=record.wait_seconds,
        reqs=comment.reqs,
        throughput=known.tables,
        server_factor=known.server_factor,
        server_factor_at=known.server_factor_at,
        age_seconds=_age(job, comment, expected, settings),
        samples=_samples(comment, record, expected),
        state=_state(job, now),
        restart_seconds=_restart_seconds(record, settings),
        time_limit_seconds=job.time_limit_seconds,
        preemptible=not pins,
        running=running,
        samples_done=record.samples_done,
        attained_gpu_seconds=record.attained_gpu_seconds,
        run_seconds=record.run_seconds,
        run_seconds_by_type=record.run_seconds_by_type,
        restarts=record.restarts,
        running_since=record.allocation_since if record.allocation else None,
        waiting_since=None if record.allocation else record.allocation_since,
        contention=_contention(record, now),
        app_gpu_seconds=record.app_gpu_seconds,
        app=comment.app,
        phase=comment.phase,
        rules=rules,
    )


def _samples(comment: Comment, record: JobRecord, expected: Expectation | None) -> float | None:
    """The declared samples, or those done if that is more; else those expected, if any are."""
    if comment.samples is not None:
        return max(comment.samples, record.samples_done)
    return expected.samples if expected is not None else None


def _restart_seconds(record: JobRecord, settings: SnapshotSettings) -> float:
    """The job's restart time as measured, else as assumed."""
    if not settings.restart_cost:
        return 0.0
    return record.restart_seconds or settings.assumed_restart_seconds


def _contention(record: JobRecord, now: float) -> float | None:
    lived = now - record.submit
    return record.app_seconds / lived if lived > 0 and record.app_seconds > 0 else None


def _state(job: JobReading, now: float) -> JobState:
    if job.state is SlurmState.RUNNING or eligible(job, now):
        return JobState.WAITING
    return JobState.DEPENDENCY if job.dependency or job.hold is not Hold.USER else JobState.HELD


def _expected(
    job: JobReading,
    record: JobRecord,
    comment: Comment,
    run_times: RunTimes,
    settings: SnapshotSettings,
    now: float,
) -> Expectation | None:
    """What past runs say of a job without samples.

    Without ``predicted`` they are asked only where there is no time limit either.
    """
    limit = job.time_limit_seconds
    if comment.samples is not None or not (settings.predicted or limit is None):
        return None
    # Slurm counts the limit anew after each requeue.
    since = record.allocation_since if record.allocation else None
    return run_times.expect(
        Asked(
            job.user,
            job.account,
            job.name,
            record.workload,
            mean_count(comment.reqs),
            record.run_seconds,
            record.attained_gpu_seconds,
            record.samples_done,
            None if limit is None else max(0.0, limit - (now - since if since else 0.0)),
        )
    )


def _age(
    job: JobReading,
    comment: Comment,
    expected: Expectation | None,
    settings: SnapshotSettings,
) -> float | None:
    """None if samples, expected ones too, or a time limit say it."""
    if expected is not None:
        return expected.seconds
    if comment.samples is not None or job.time_limit_seconds is not None:
        return None
    return settings.default_age_seconds

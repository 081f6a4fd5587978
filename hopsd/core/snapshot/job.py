"""A job as policies see it: what Slurm, its comment, its record and past runs say, put together."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hopsd.core.placement.available import kept_to_counts
from hopsd.core.placement.pools import Able, Pools, pools_of
from hopsd.core.placement.shortages import Shortages
from hopsd.core.queue.history import eligible
from hopsd.core.queue.priority import mean_count
from hopsd.core.queue.progress import Progress, progress
from hopsd.core.queue.run_time import Expectation, RunTimeQuery, RunTimes, by_declared, by_loops
from hopsd.core.snapshot.doubts import doubtful_batch, doubts_of_job
from hopsd.core.snapshot.pinning import STAY_NOTES, UNSEEN_SAVE_NOTE, Stay
from hopsd.core.snapshot.settings import SnapshotSettings
from hopsd.core.speed.estimator import Estimate, Estimator
from hopsd.core.submission.comment import Comment
from hopsd.core.submission.partitions import Access
from hopsd.core.submission.rules import (
    BlockRule,
    RulesOnNodes,
    TypesNotes,
    on_racks,
    racks_note,
    segments_note,
)
from hopsd.model.allocation import Allocation
from hopsd.model.devices import usable
from hopsd.model.history import JobRecord
from hopsd.model.ids import GpuType, NodeName, WorkloadName
from hopsd.model.job import Job, JobState, Node
from hopsd.model.reading import Hold, JobReading, Reading, SlurmState
from hopsd.model.rules import ANYWHERE, Rules

MINGLED_NOTE = (
    "how long its ranks communicate is not known, as only DistributedDataParallel tells: it counts"
    " as forward and backward time, so speeds are less certain for shapes not yet measured"
)


class Speeds:
    """Estimates for jobs on the nodes where they may run, shared by jobs with equal ones."""

    def __init__(self, estimator: Estimator, nodes: Sequence[Node]) -> None:
        self._estimator = estimator
        self._nodes = nodes
        self._pools: dict[frozenset[NodeName], Pools] = {}
        self._found: dict[tuple[WorkloadName, bool, tuple[GpuType, ...]], Estimate] = {}
        self._doubts: dict[WorkloadName, str] = {}

    def pools(self, where: frozenset[NodeName]) -> Pools:
        """The GPU types of the nodes ``where``."""
        if where not in self._pools:
            self._pools[where] = pools_of(node for node in self._nodes if node.name in where)
        return self._pools[where]

    def of(self, workload: WorkloadName, pools: Pools, *, cpu: bool) -> Estimate:
        """The workload's speeds on the GPU types of ``pools``; ``cpu``: on CPU nodes."""
        key = workload, cpu, tuple(pools)
        if key not in self._found:
            known = self._estimator.estimate(workload)
            tables = {t: table for t, table in usable(known.tables, cpu=cpu).items() if t in pools}
            # The same tables if all are kept: much is remembered of them (Remembered).
            whole = len(tables) == len(known.tables)
            self._found[key] = known if whole else replace(known, tables=tables)
        return self._found[key]

    def doubt(self, workload: WorkloadName) -> str:
        """A note if what its jobs report contradicts itself."""
        if workload not in self._doubts:
            self._doubts[workload] = doubtful_batch(self._estimator.records(workload))
        return self._doubts[workload]


@dataclass(frozen=True, slots=True)
class Context:
    """What all jobs of a reading have in common. ``up``, ``pools``: the schedulable nodes;
    ``able``: who could run there; ``rules``: on all that have GPUs;
    ``racked``: whether the leaf switch or rack of a node is known; ``blocks``: what Slurm allows
    over several of its blocks.
    """

    reading: Reading
    settings: SnapshotSettings
    up: frozenset[NodeName]
    access: Access
    pools: Pools
    able: Able
    speeds: Speeds
    run_times: RunTimes
    shortages: Shortages
    rules: RulesOnNodes
    types: TypesNotes
    racked: bool
    blocks: BlockRule


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What is known about one job: Slurm's reading, the user's comment, hops's record."""

    read: JobReading
    comment: Comment
    record: JobRecord
    stay: Stay


@dataclass(frozen=True, slots=True)
class SnapshotJob:
    """``job``: None if it runs on unusable nodes only. ``note``: what its user should know about
    how it is planned, or "". ``expected``: its run time, if the user did not tell it.
    """

    job: Job | None
    note: str
    expected: Expectation | None


def snapshot_job(of: JobFacts, context: Context) -> SnapshotJob:
    """The job with the GPU counts, speeds and nodes that are open to it."""
    where = context.access.nodes(of.read, min(of.comment.reqs))
    pools = context.speeds.pools(where)
    speeds = context.speeds.of(of.record.workload, pools, cpu=of.comment.cpu)
    reqs, left_out = _within_reach(of.comment.reqs, speeds, pools)
    memory = context.reading.memory_of(of.read)
    rules = context.rules.of(of.read, memory, of.comment.shape, of.comment.per_node, where)
    if context.racked:
        rules = on_racks(rules, of.read, of.record.wait_seconds)
    rules, blocks = context.blocks.applied(rules, reqs)
    unsaved = STAY_NOTES.get(of.stay, "")
    movable = of.stay is Stay.NO and of.read.state is SlurmState.RUNNING
    if movable and of.record.saved is False:
        unsaved = UNSEEN_SAVE_NOTE
    racks = racks_note(of.read, of.record.wait_seconds, racked=context.racked)
    segments = segments_note(rules, of.comment.reqs)
    types = context.types.of(of.read)
    mingled = "" if of.record.communication_timed is not False else MINGLED_NOTE
    trained = progress(of.record, speeds.tables, speeds.server_factor.values())
    cores, longer = _fewer_cores(of.read, rules), _longer_than_declared(of, trained)
    notes = [left_out, cores, longer, types, racks, segments, blocks, unsaved, mingled]
    notes += [*doubts_of_job(of.comment, of.record), context.speeds.doubt(of.record.workload)]
    if left_out:
        of = replace(of, comment=replace(of.comment, reqs=reqs))
    expected = _expected(of, context)
    job = _job(of, context, speeds, rules, expected, trained)
    if job is not None:
        job, short = context.shortages.avoided(
            kept_to_counts(job), of.record.workload, context.pools, lasting=not of.read.avoids
        )
        job = _left_alone(job, context.able)
        notes.append(short)
    return SnapshotJob(job, "; ".join(note for note in notes if note), expected)


def _job(
    of: JobFacts,
    context: Context,
    speeds: Estimate,
    rules: Rules,
    expected: Expectation | None,
    trained: Progress,
) -> Job | None:
    read, comment, record, settings = of.read, of.comment, of.record, context.settings
    running = _running(read, context)
    if read.state is SlurmState.RUNNING and not running:
        return None
    return Job(
        id=read.id,
        user=read.user,
        submit=record.submit,
        wait_seconds=record.wait_seconds,
        reqs=comment.reqs,
        throughput=speeds.tables,
        server_factor=speeds.server_factor,
        server_factor_at=speeds.server_factor_at,
        age_seconds=_age(of, expected, settings),
        samples=_samples(of, expected, trained),
        state=_state(read, context.reading.now),
        restart_seconds=_restart_seconds(record, settings),
        time_limit_seconds=read.time_limit_seconds,
        preemptible=of.stay is Stay.NO,
        running=running,
        samples_done=trained.done,
        attained_gpu_seconds=record.attained_gpu_seconds,
        run_seconds=record.run_seconds,
        run_seconds_by_type=record.run_seconds_by_type,
        restarts=record.restarts,
        running_since=record.allocation_since if record.allocation else None,
        waiting_since=None if record.allocation else record.allocation_since,
        contention=_contention(record, context.reading.now),
        app_gpu_seconds=record.app_gpu_seconds,
        app=comment.app,
        phase=comment.phase,
        rules=rules,
        across=speeds.across if context.racked else {},
    )


def _left_alone(job: Job, able: Able) -> Job:
    """Pin a running job whose rules would not let it run anywhere again."""
    if job.running and job.preemptible and job.rules != ANYWHERE and not able(job):
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


def _longer_than_declared(of: JobFacts, trained: Progress) -> str:
    """A note about samples= that were too few."""
    declared, done = of.comment.samples, of.record.samples_done
    if declared is None or (expected := by_declared(declared, trained.due)) == declared:
        return ""
    if trained.due > done:
        return (
            f"in the time on its GPUs it could have trained {trained.due:,.0f} samples, more than"
            f" its samples={declared:g}, and reports {done:,.0f}: it is expected to train"
            f" {expected:,.0f} in all"
        )
    return (
        f"it has trained {done:,.0f} samples, more than its samples={declared:g}: it is expected"
        f" to train {expected:,.0f} in all"
    )


def _running(read: JobReading, context: Context) -> Allocation:
    """What the job holds of the schedulable nodes."""
    if context.up.issuperset(read.allocation.nodes):
        return read.allocation
    return Allocation.of({node: gpus for node, gpus in read.allocation if node in context.up})


def _samples(of: JobFacts, expected: Expectation | None, trained: Progress) -> float | None:
    """As declared, else as expected."""
    if of.comment.samples is not None:
        return by_declared(of.comment.samples, trained.due)
    return expected.samples if expected is not None else None


def _age(of: JobFacts, expected: Expectation | None, settings: SnapshotSettings) -> float | None:
    """None if samples, expected ones too, or a time limit say it."""
    if expected is not None:
        return expected.seconds
    if of.comment.samples is not None or of.read.time_limit_seconds is not None:
        return None
    return settings.default_age_seconds


def _expected(of: JobFacts, context: Context) -> Expectation | None:
    """What its training's own loops, else past runs, say of a job without samples.

    Without ``predicted`` they are asked only where there is no time limit either.
    """
    limit = of.read.time_limit_seconds
    if of.comment.samples is not None or not (context.settings.predicted or limit is None):
        return None
    if of.record.samples_planned is not None:
        return by_loops(of.record.samples_planned, of.record.samples_done)
    # Slurm counts the limit anew after each requeue.
    since = of.record.allocation_since if of.record.allocation else None
    passed = context.reading.now - since if since else 0.0
    return context.run_times.expect(
        RunTimeQuery(
            of.read.user,
            of.read.account,
            of.read.name,
            of.record.workload,
            mean_count(of.comment.reqs),
            of.record.run_seconds,
            of.record.attained_gpu_seconds,
            of.record.samples_done,
            None if limit is None else max(0.0, limit - passed),
        )
    )


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

"""A job as policies see it: combines Slurm's reading, the comment, the record and past runs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hopsd.core.placement.available import kept_to_counts
from hopsd.core.placement.pools import Pools, RunnableFilter, pools_of
from hopsd.core.placement.shortages import Shortages
from hopsd.core.queue.history import eligible
from hopsd.core.queue.priority import mean_count
from hopsd.core.queue.progress import Progress, progress
from hopsd.core.queue.run_time import Expectation, RunTimeQuery, RunTimes, by_declared, by_loops
from hopsd.core.snapshot.doubts import doubtful_batch, doubts_of_job
from hopsd.core.snapshot.pinning import STAY_NOTES, STEPS_NOTE, UNSEEN_SAVE_NOTE, StayRule
from hopsd.core.snapshot.settings import SnapshotSettings
from hopsd.core.speed.estimator import Estimator, SpeedTables
from hopsd.core.submission.comment import Comment
from hopsd.core.submission.partitions import Access
from hopsd.core.submission.placement_rules import (
    BlockRule,
    NodesNotes,
    RulesOnNodes,
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
    "how long its ranks communicate is not known, since only DistributedDataParallel reports it: it"
    " counts as forward and backward time, so speeds are less certain for shapes not yet measured"
)


class Speeds:
    """Estimates for jobs on the nodes where they may run, shared by jobs with equal estimates."""

    def __init__(self, estimator: Estimator, nodes: Sequence[Node]) -> None:
        self._estimator = estimator
        self._nodes = nodes
        self._pools: dict[frozenset[NodeName], Pools] = {}
        self._estimates: dict[tuple[WorkloadName, bool, tuple[GpuType, ...]], SpeedTables] = {}
        self._doubts: dict[WorkloadName, str] = {}

    def pools(self, nodes: frozenset[NodeName]) -> Pools:
        """Return the GPU types of the nodes ``nodes``."""
        if nodes not in self._pools:
            self._pools[nodes] = pools_of(node for node in self._nodes if node.name in nodes)
        return self._pools[nodes]

    def estimate(self, workload: WorkloadName, pools: Pools, *, cpu: bool) -> SpeedTables:
        """Return the workload's speeds on the types of ``pools``; ``cpu``: also on CPU nodes."""
        key = workload, cpu, tuple(pools)
        if key not in self._estimates:
            estimate = self._estimator.estimate(workload)
            tables = {
                t: table for t, table in usable(estimate.tables, cpu=cpu).items() if t in pools
            }
            # Return the same object if no table is dropped: caches are keyed by it (JobCache).
            complete = len(tables) == len(estimate.tables)
            self._estimates[key] = estimate if complete else replace(estimate, tables=tables)
        return self._estimates[key]

    def doubt(self, workload: WorkloadName) -> str:
        """Return a note if the reports of the workload's jobs contradict each other."""
        if workload not in self._doubts:
            self._doubts[workload] = doubtful_batch(self._estimator.records(workload))
        return self._doubts[workload]


@dataclass(frozen=True, slots=True)
class Context:
    """The facts that all jobs of a reading share.

    ``schedulable``, ``pools``: the schedulable nodes; ``runnable``: tells which jobs could run
    there; ``rules``: placement rules on all nodes with GPUs; ``has_racks``: whether the leaf switch
    or rack of any node is known; ``blocks``: what Slurm allows across blocks.
    """

    reading: Reading
    settings: SnapshotSettings
    schedulable: frozenset[NodeName]
    access: Access
    pools: Pools
    runnable: RunnableFilter
    speeds: Speeds
    run_times: RunTimes
    shortages: Shortages
    rules: RulesOnNodes
    nodes_notes: NodesNotes
    has_racks: bool
    blocks: BlockRule


@dataclass(frozen=True, slots=True)
class JobFacts:
    """The facts about one job: Slurm's reading, the user's comment, hops' record."""

    reading: JobReading
    comment: Comment
    record: JobRecord
    stay: StayRule


@dataclass(frozen=True, slots=True)
class SnapshotJob:
    """A job in a snapshot. ``job`` is None if it runs on unusable nodes only.

    ``note``: a remark for the job's user on how it is planned, or "". ``expected``: the job's run
    time, if the user did not declare it.
    """

    job: Job | None
    note: str
    expected: Expectation | None


def snapshot_job(facts: JobFacts, context: Context) -> SnapshotJob:
    """Return the job with the GPU counts, speeds and nodes that are open to it."""
    nodes = context.access.nodes(facts.reading, min(facts.comment.reqs))
    pools = context.speeds.pools(nodes)
    speeds = context.speeds.estimate(facts.record.workload, pools, cpu=facts.comment.cpu)
    reqs, left_out = _within_reach(facts.comment.reqs, speeds, pools)
    memory = context.reading.memory_of(facts.reading)
    rules = context.rules.for_job(
        facts.reading, memory, facts.comment.shape, facts.comment.per_node, nodes
    )
    if context.has_racks:
        rules = on_racks(rules, facts.reading, facts.record.wait_seconds)
    rules, blocks = context.blocks.apply(rules, reqs)
    save_note = STAY_NOTES.get(facts.stay, "")
    movable = facts.stay is StayRule.NO and facts.reading.state is SlurmState.RUNNING
    if movable and facts.record.saved is False:
        save_note = UNSEEN_SAVE_NOTE
    steps = _steps_note(facts)
    racks = racks_note(facts.reading, facts.record.wait_seconds, has_racks=context.has_racks)
    segments = segments_note(rules, facts.comment.reqs)
    unusable = context.nodes_notes.for_job(facts.reading)
    mixture_note = "" if facts.record.communication_timed is not False else MINGLED_NOTE
    progress_now = progress(facts.record, speeds.tables, speeds.server_factor.values())
    cores, longer = _fewer_cores(facts.reading, rules), _longer_than_declared(facts, progress_now)
    notes = [
        left_out,
        cores,
        longer,
        unusable,
        racks,
        segments,
        blocks,
        save_note,
        steps,
        mixture_note,
    ]
    notes += [
        *doubts_of_job(facts.comment, facts.record),
        context.speeds.doubt(facts.record.workload),
    ]
    if left_out:
        facts = replace(facts, comment=replace(facts.comment, reqs=reqs))
    expected = _expected(facts, context)
    job = _job(facts, context, speeds, rules, expected, progress_now)
    if job is not None:
        job, short = context.shortages.avoid(
            kept_to_counts(job),
            facts.record.workload,
            context.pools,
            lasting=not facts.reading.avoids,
        )
        job = _left_alone(job, context.runnable)
        notes.append(short)
    return SnapshotJob(job, "; ".join(note for note in notes if note), expected)


def _steps_note(facts: JobFacts) -> str:
    """Return a note on what another GPU count does to a training that does not keep its steps."""
    moves = facts.stay in (StayRule.NO, StayRule.UNTIL_SAVED) and len(set(facts.comment.reqs)) > 1
    return STEPS_NOTE if moves and facts.record.keeps_steps is False else ""


def _job(
    facts: JobFacts,
    context: Context,
    speeds: SpeedTables,
    rules: Rules,
    expected: Expectation | None,
    progress: Progress,
) -> Job | None:
    reading, comment, record, settings = (
        facts.reading,
        facts.comment,
        facts.record,
        context.settings,
    )
    running = _running(reading, context)
    if reading.state is SlurmState.RUNNING and not running:
        return None
    return Job(
        id=reading.id,
        user=reading.user,
        submit=record.submit,
        wait_seconds=record.wait_seconds,
        reqs=comment.reqs,
        throughput=speeds.tables,
        server_factor=speeds.server_factor,
        server_factor_at=speeds.server_factor_at,
        age_seconds=_age(facts, expected, settings),
        samples=_samples(facts, expected, progress),
        state=_state(reading, context.reading.now),
        restart_seconds=_restart_seconds(record, settings),
        time_limit_seconds=reading.time_limit_seconds,
        preemptible=facts.stay is StayRule.NO,
        running=running,
        samples_done=progress.samples,
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
        across=speeds.across if context.has_racks else {},
    )


def _left_alone(job: Job, runnable: RunnableFilter) -> Job:
    """Pin a running job whose rules would not let it run anywhere again."""
    if job.running and job.preemptible and job.rules != ANYWHERE and not runnable(job):
        return replace(job, preemptible=False)
    return job


def _within_reach(
    reqs: tuple[int, ...], estimate: SpeedTables, pools: Pools
) -> tuple[tuple[int, ...], str]:
    """Return the counts that the open nodes could hold when idle, and a note about the others.

    The smallest count is always kept, so that a reason can be given if the job cannot run anywhere.
    """
    capacity = max(
        (
            pool.gpus if table.distributed else pool.largest
            for name, table in estimate.tables.items()
            if (pool := pools.get(name)) is not None
        ),
        default=0,
    )
    reachable = reqs[: max(1, bisect_right(reqs, capacity))]
    if len(reachable) == len(reqs):
        return reqs, ""
    return reachable, (
        f"{len(reqs) - len(reachable)} of its {len(reqs)} GPU counts, from"
        f" {reqs[len(reachable)]} on, are left out: no partition that it may use"
        f" could hold more than {capacity}"
    )


def _fewer_cores(job: JobReading, rules: Rules) -> str:
    """Return a note about cores that the job asks for and does not get."""
    requested_cores = job.options.cores_per_gpu
    if (
        requested_cores is None
        or job.options.exclusive
        or rules.cores_per_gpu >= float(requested_cores) - 1e-3
    ):
        return ""
    return (
        f"it gets {rules.cores_per_gpu:g} CPU cores with each GPU instead of the"
        f" {float(requested_cores):g}"
        " that it asks for: no GPU comes with more than its share of its node"
    )


def _longer_than_declared(facts: JobFacts, progress: Progress) -> str:
    """Return a note if samples= was too low."""
    claim, trained_samples = facts.comment.samples, facts.record.samples_done
    if claim is None or (expected := by_declared(claim, progress.due)) == claim:
        return ""
    if progress.due > trained_samples:
        return (
            f"in the time on its GPUs it could have trained {progress.due:,.0f} samples, more than"
            f" its samples={claim:g}, and reports {trained_samples:,.0f}: it is expected to"
            f" train {expected:,.0f} in all"
        )
    return (
        f"it has trained {trained_samples:,.0f} samples, more than its samples={claim:g}: it is"
        f" expected to train {expected:,.0f} in all"
    )


def _running(reading: JobReading, context: Context) -> Allocation:
    """Return the job's allocation on schedulable nodes."""
    if context.schedulable.issuperset(reading.allocation.nodes):
        return reading.allocation
    return Allocation.of(
        {node: gpus for node, gpus in reading.allocation if node in context.schedulable}
    )


def _samples(facts: JobFacts, expected: Expectation | None, progress: Progress) -> float | None:
    """Return the total samples as declared, or else as expected."""
    if facts.comment.samples is not None:
        return by_declared(facts.comment.samples, progress.due)
    return expected.samples if expected is not None else None


def _age(facts: JobFacts, expected: Expectation | None, settings: SnapshotSettings) -> float | None:
    """Return the age; None if (expected) samples or a time limit determine it."""
    if expected is not None:
        return expected.seconds
    if facts.comment.samples is not None or facts.reading.time_limit_seconds is not None:
        return None
    return settings.default_age_seconds


def _expected(facts: JobFacts, context: Context) -> Expectation | None:
    """Return the expected run time of a job without samples, by its loops, else by past runs.

    Unless ``predicted`` is set, this is done only for jobs without a time limit.
    """
    limit = facts.reading.time_limit_seconds
    if facts.comment.samples is not None or not (context.settings.predicted or limit is None):
        return None
    if facts.record.samples_planned is not None:
        return by_loops(facts.record.samples_planned, facts.record.samples_done)
    # After each requeue, Slurm counts the limit from the start.
    since = facts.record.allocation_since if facts.record.allocation else None
    elapsed_seconds = context.reading.now - since if since else 0.0
    return context.run_times.expect(
        RunTimeQuery(
            facts.reading.user,
            facts.reading.account,
            facts.reading.name,
            facts.record.workload,
            mean_count(facts.comment.reqs),
            facts.record.run_seconds,
            facts.record.attained_gpu_seconds,
            facts.record.samples_done,
            None if limit is None else max(0.0, limit - elapsed_seconds),
        )
    )


def _restart_seconds(record: JobRecord, settings: SnapshotSettings) -> float:
    """Return the job's restart time as measured, or else as assumed."""
    if not settings.restart_cost:
        return 0.0
    return record.restart_seconds or settings.assumed_restart_seconds


def _contention(record: JobRecord, now: float) -> float | None:
    lifetime = now - record.submit
    return record.app_seconds / lifetime if lifetime > 0 and record.app_seconds > 0 else None


def _state(job: JobReading, now: float) -> JobState:
    if job.state is SlurmState.RUNNING or eligible(job, now):
        return JobState.WAITING
    return JobState.DEPENDENCY if job.dependency or job.hold is not Hold.USER else JobState.HELD

"""Builds a policy's input, the snapshot, from a reading of the cluster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hopsd.core.placement.pools import RunnableFilter, could_run, job_cache, pools_of
from hopsd.core.placement.shortages import Shortages
from hopsd.core.queue.history import OCCUPYING_STATES
from hopsd.core.queue.run_time import Expectation, RunTimes
from hopsd.core.site.job_limits import open_partitions, standing, within_site
from hopsd.core.site.limits import limit_rows, over_limits
from hopsd.core.site.partition_room import PartitionSelector
from hopsd.core.snapshot.job import Context, JobFacts, SnapshotJob, Speeds, snapshot_job
from hopsd.core.snapshot.pinning import Pinning, StayRule, Unsaved
from hopsd.core.snapshot.settings import SnapshotSettings
from hopsd.core.speed.estimator import Estimator
from hopsd.core.submission.comment import Comment
from hopsd.core.submission.partitions import Access
from hopsd.core.submission.placement_rules import BlockRule, NodesNotes, RulesOnNodes
from hopsd.model.devices import is_cpu
from hopsd.model.history import JobRecord
from hopsd.model.ids import JobId, NodeName, RackName, host_of
from hopsd.model.job import Job, Node
from hopsd.model.knowledge import Knowledge
from hopsd.model.plan import RoundInfo, Snapshot
from hopsd.model.reading import JobReading, NodeReading, Reading, SlurmState
from hopsd.model.reason import Reason
from hopsd.model.rules import intern_nodes


@dataclass(frozen=True, slots=True)
class SnapshotBuild:
    """A snapshot with related facts that policies do not need.

    ``pinned_jobs``: running jobs that the round must not move. ``notes``: remarks for a job's user
    on how it is planned. ``refusals``: waiting jobs that Slurm would never start; they are not in
    the snapshot. ``expected``: run times that users did not declare. ``partitions``: those of jobs
    that are planned in only some of the partitions they request.
    """

    snapshot: Snapshot
    pinned_jobs: frozenset[JobId]
    notes: Mapping[JobId, str] = field(default_factory=dict)
    refusals: Mapping[JobId, Reason] = field(default_factory=dict)
    expected: Mapping[JobId, Expectation] = field(default_factory=dict)
    partitions: Mapping[JobId, str] = field(default_factory=dict)

    def with_notes(self, notes: Mapping[JobId, str]) -> SnapshotBuild:
        """Return a copy with further notes."""
        if not notes:
            return self
        updated_notes = {
            job: "; ".join(filter(None, [self.notes.get(job), notes[job]])) for job in notes
        }
        return replace(self, notes={**self.notes, **updated_notes})


def build_snapshot(
    reading: Reading,
    records: Mapping[JobId, JobRecord],
    comments: Mapping[JobId, Comment],
    knowledge: Knowledge,
    info: RoundInfo,
    settings: SnapshotSettings,
) -> SnapshotBuild:
    """Build a snapshot: the schedulable nodes and the jobs with a valid comment."""
    nodes = _nodes(reading, settings.racks)
    context = _context(reading, nodes, knowledge, info, settings)
    rule = Pinning(
        context.schedulable,
        context.access,
        settings.pinned,
        settings.unsaved,
        settings.signal,
        frozenset() if settings.unsaved is Unsaved.MOVES else knowledge.ended_by_signal,
        frozenset() if settings.unsaved is Unsaved.MOVES else knowledge.failed_again,
    )
    jobs: list[Job] = []
    pinned_jobs: set[JobId] = set()
    notes: dict[JobId, str] = {}
    refusals: dict[JobId, Reason] = {}
    expected: dict[JobId, Expectation] = {}
    job_readings: list[JobReading] = []
    # When a round begins, jobs may leave a partition, and Slurm would start others there.
    movable_jobs = [job for job, comment in comments.items() if info.first and comment.preempt]
    choice = _Choice(context, PartitionSelector(reading, frozenset(movable_jobs)))
    largest = max((node.gpus for node in reading.nodes), default=0)
    for original in reading.jobs:
        comment = comments.get(original.id)
        partitions = open_partitions(original, reading) if comment else original.partition
        job_reading = original
        if not isinstance(partitions, Reason) and partitions != original.partition:
            job_reading = replace(original, partition=partitions)
        job_readings.append(job_reading)
        stay = rule.decide(job_reading, comment, records.get(job_reading.id))
        if stay is not StayRule.NO:
            pinned_jobs.add(job_reading.id)
        if comment is not None and job_reading.state in (SlurmState.PENDING, SlurmState.RUNNING):
            job_reading, entry = choice.job(
                JobFacts(job_reading, comment, records[job_reading.id], stay)
            )
            job_readings[-1] = job_reading
            if entry.job is not None:
                placeable = _on_site(entry.job, job_reading, partitions, reading, largest)
                if isinstance(placeable, Job):
                    jobs.append(placeable)
                else:
                    refusals[job_reading.id] = placeable
            if entry.note:
                notes[job_reading.id] = entry.note
            if entry.expected is not None:
                expected[job_reading.id] = entry.expected
    narrowed_reading = replace(reading, jobs=tuple(job_readings))
    limits = limit_rows(narrowed_reading, jobs)
    if info.first and (limit_breakers := over_limits(narrowed_reading, jobs)):
        jobs = [
            replace(job, preemptible=False) if job.id in limit_breakers else job for job in jobs
        ]
    pinned_jobs |= {job.id for job in jobs if job.running and not job.preemptible}
    snapshot = Snapshot(reading.now, info, nodes, tuple(jobs), limits=limits)
    narrowed_jobs = {
        job_reading.id: job_reading.partition
        for job_reading, original in zip(job_readings, reading.jobs, strict=True)
        if set(job_reading.partition.split(",")) != set(original.partition.split(","))
    }
    return SnapshotBuild(snapshot, frozenset(pinned_jobs), notes, refusals, expected, narrowed_jobs)


class _Choice:
    """Chooses the partitions in which a waiting job counts, and which it may use."""

    def __init__(self, context: Context, room: PartitionSelector) -> None:
        reading = context.reading
        self._context, self._room = context, room
        self._open = frozenset(node.name for node in reading.nodes if not node.partitions)
        self._nodes: dict[str, set[NodeName]] = defaultdict(set)
        for node in reading.nodes:
            for name in node.partitions:
                self._nodes[name].add(node.name)
        self._answers: dict[object, bool] = {}

    def job(self, facts: JobFacts) -> tuple[JobReading, SnapshotJob]:
        """Return the job's reading and snapshot, a waiting job's in its chosen partitions."""
        reading, entry = facts.reading, snapshot_job(facts, self._context)
        if "," not in reading.partition or entry.job is None or entry.job.running:
            return reading, entry
        partitions, note = self._partitions(entry.job, reading)
        if partitions != reading.partition:
            reading = replace(reading, partition=partitions)
            entry = snapshot_job(replace(facts, reading=reading), self._context)
        return reading, replace(entry, note="; ".join(filter(None, [entry.note, note])))

    def _partitions(self, job: Job, reading: JobReading) -> tuple[str, str]:
        """Return the partitions that could hold the job when idle and have room in their limits.

        Also returns a note on the other partitions.
        """
        names = reading.partition.split(",")
        candidates = (
            ",".join(name for name in names if self._could_hold(job, name)) or reading.partition
        )
        return self._room.partitions(job, replace(reading, partition=candidates))

    def _could_hold(self, job: Job, partition: str) -> bool:
        key = id(job.throughput), job.reqs, job.rules, partition
        if key not in self._answers:
            available, rules = self._open | self._nodes[partition], job.rules
            nodes = available if rules.nodes is None else available & rules.nodes
            confined_job = replace(job, rules=replace(rules, nodes=intern_nodes(nodes)))
            self._answers[key] = could_run(confined_job, self._context.pools)
        return self._answers[key]


def _context(
    reading: Reading,
    nodes: Sequence[Node],
    knowledge: Knowledge,
    info: RoundInfo,
    settings: SnapshotSettings,
) -> Context:
    estimator = Estimator(nodes, knowledge, settings.estimator, reading.now)
    pools = pools_of(nodes)
    return Context(
        reading,
        settings,
        frozenset(node.name for node in nodes),
        Access(reading, _idle(nodes, reading, info)),
        pools,
        RunnableFilter(pools, cache=job_cache(nodes)),
        Speeds(estimator, nodes),
        RunTimes(knowledge.runs),
        Shortages(knowledge.shortages, reading.now),
        RulesOnNodes([node for node in reading.nodes if node.gpus], settings.cpus_per_gpu),
        NodesNotes(reading.nodes),
        any(node.switches for node in nodes),
        BlockRule.from_reading(reading),
    )


def _on_site(
    job: Job, job_reading: JobReading, partitions: str | Reason, reading: Reading, largest: int
) -> Job | Reason:
    """Return the job with the GPU counts that the site allows in its open ``partitions``.

    Returns the reason if the site allows none. A running job stays as it is. ``largest``: the
    number of GPUs of the largest node.
    """
    result: Job | Reason
    if isinstance(partitions, Reason):
        result = partitions
    else:
        result = within_site(job, job_reading, reading.site, largest, reading.now)
    if isinstance(result, Job):
        factors = standing(job_reading, reading.site)
        return replace(result, **factors) if factors else result
    return replace(job, preemptible=False) if job.running else result


def _idle(nodes: Iterable[Node], reading: Reading, info: RoundInfo) -> dict[NodeName, int]:
    """Return the GPUs that a plan may give, by node; a first plan may give those of hops jobs."""
    if not info.first:
        return {node.name: node.idle for node in nodes}
    foreign = {node.name: node.foreign_gpus for node in reading.nodes}
    return {node.name: node.gpus - foreign[node.name] for node in nodes}


def _nodes(reading: Reading, racks: Mapping[NodeName, RackName]) -> tuple[Node, ...]:
    """Return the schedulable nodes."""
    gpus_in_use: dict[NodeName, int] = defaultdict(int)
    for job in reading.jobs:
        if job.state in OCCUPYING_STATES:
            for node, gpus in job.allocation:
                gpus_in_use[node] += gpus
    return tuple(
        Node(
            n.name,
            n.gpu_type,
            n.gpus,
            max(0, n.gpus - n.foreign_gpus - gpus_in_use[n.name]),
            switches=_switches(n, racks),
            **_cores_and_memory(n, reading),
        )
        for n in reading.nodes
        if n.usable and n.gpus
    )


def with_racks(reading: Reading, racks: Mapping[NodeName, RackName]) -> Reading:
    """Add the administrator's racks to the reading, where Slurm knows no switches."""
    if not racks:
        return reading
    nodes = (replace(node, switches=_switches(node, racks)) for node in reading.nodes)
    return replace(reading, nodes=tuple(nodes))


def _switches(node: NodeReading, racks: Mapping[NodeName, RackName]) -> tuple[str, ...]:
    """Return the switches that Slurm knows, or else the rack that the administrator named."""
    rack = racks.get(host_of(node.name))
    return node.switches or ((rack,) if rack else ())


def _cores_and_memory(node: NodeReading, reading: Reading) -> dict[str, int | None]:
    """Return cores and memory, if Slurm reports how much is free.

    Cores of CPU nodes are left out, since they are the devices.
    """
    amounts: dict[str, int | None] = {}
    if node.idle_cores is not None and not is_cpu(node.gpu_type):
        amounts |= {"cores": node.cores, "idle_cores": node.idle_cores}
    if reading.memory.counted and node.memory_mb and node.idle_memory_mb is not None:
        amounts |= {"memory_mb": node.memory_mb, "idle_memory_mb": node.idle_memory_mb}
    return amounts

"""Builds a policy's input, the snapshot, from a reading of the cluster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hopsd.core.placement.pools import Able, could_run, pools_of, remembered
from hopsd.core.placement.shortages import Shortages
from hopsd.core.queue.history import OCCUPYING
from hopsd.core.queue.run_time import Expectation, RunTimes
from hopsd.core.site.limits import limit_rows, over_limits
from hopsd.core.site.own_bounds import open_partitions, standing, within_site
from hopsd.core.site.room import PartitionSelector
from hopsd.core.snapshot.job import Context, JobFacts, SnapshotJob, Speeds, snapshot_job
from hopsd.core.snapshot.pinning import Pinning, Stay, Unsaved
from hopsd.core.snapshot.settings import SnapshotSettings
from hopsd.core.speed.estimator import Estimator
from hopsd.core.submission.comment import Comment
from hopsd.core.submission.partitions import Access
from hopsd.core.submission.rules import BlockRule, RulesOnNodes, TypesNotes
from hopsd.model.devices import is_cpu
from hopsd.model.history import JobRecord
from hopsd.model.ids import JobId, NodeName, RackName, host_of
from hopsd.model.job import Job, Node
from hopsd.model.knowledge import Knowledge
from hopsd.model.plan import RoundInfo, Snapshot
from hopsd.model.reading import JobReading, NodeReading, Reading, SlurmState
from hopsd.model.reason import Reason
from hopsd.model.rules import interned


@dataclass(frozen=True, slots=True)
class SnapshotBuild:
    """A snapshot with related facts that policies do not need.

    ``pinned``: running jobs that the round must leave where they are. ``notes``: what a job's user
    should know about how it is planned. ``refused``: waiting jobs that Slurm would never start;
    they are not in the snapshot. ``expected``: run times that users did not tell.
    ``partitions``: of jobs that are counted in a part of those that they ask for.
    """

    snapshot: Snapshot
    pinned: frozenset[JobId]
    notes: Mapping[JobId, str] = field(default_factory=dict)
    refused: Mapping[JobId, Reason] = field(default_factory=dict)
    expected: Mapping[JobId, Expectation] = field(default_factory=dict)
    partitions: Mapping[JobId, str] = field(default_factory=dict)

    def with_notes(self, more: Mapping[JobId, str]) -> SnapshotBuild:
        """The same with further notes."""
        if not more:
            return self
        joined = {job: "; ".join(filter(None, [self.notes.get(job), more[job]])) for job in more}
        return replace(self, notes={**self.notes, **joined})


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
    pinning = Pinning(
        context.up,
        context.access,
        settings.pinned,
        settings.unsaved,
        frozenset() if settings.unsaved is Unsaved.MOVES else knowledge.ended_by_signal,
    )
    jobs: list[Job] = []
    pinned: set[JobId] = set()
    notes: dict[JobId, str] = {}
    refused: dict[JobId, Reason] = {}
    expected: dict[JobId, Expectation] = {}
    reads: list[JobReading] = []
    # At a round's start jobs may leave a partition, and Slurm would start others there.
    leaving = [job for job, comment in comments.items() if info.first and comment.preempt]
    choice = _Choice(context, PartitionSelector(reading, frozenset(leaving)))
    largest = max((node.gpus for node in reading.nodes), default=0)
    for asked in reading.jobs:
        comment = comments.get(asked.id)
        partitions = open_partitions(asked, reading) if comment else asked.partition
        read = asked
        if not isinstance(partitions, Reason) and partitions != asked.partition:
            read = replace(asked, partition=partitions)
        reads.append(read)
        stay = pinning.of(read, comment, records.get(read.id))
        if stay is not Stay.NO:
            pinned.add(read.id)
        if comment is not None and read.state in (SlurmState.PENDING, SlurmState.RUNNING):
            read, seen = choice.job(JobFacts(read, comment, records[read.id], stay))
            reads[-1] = read
            if seen.job is not None:
                found = _on_site(seen.job, read, partitions, reading, largest)
                if isinstance(found, Job):
                    jobs.append(found)
                else:
                    refused[read.id] = found
            if seen.note:
                notes[read.id] = seen.note
            if seen.expected is not None:
                expected[read.id] = seen.expected
    counted = replace(reading, jobs=tuple(reads))
    limits = limit_rows(counted, jobs)
    if info.first and (over := over_limits(counted, jobs)):
        jobs = [replace(job, preemptible=False) if job.id in over else job for job in jobs]
    pinned |= {job.id for job in jobs if job.running and not job.preemptible}
    snapshot = Snapshot(reading.now, info, nodes, tuple(jobs), limits=limits)
    narrowed = {
        read.id: read.partition
        for read, asked in zip(reads, reading.jobs, strict=True)
        if set(read.partition.split(",")) != set(asked.partition.split(","))
    }
    return SnapshotBuild(snapshot, frozenset(pinned), notes, refused, expected, narrowed)


class _Choice:
    """Which of a waiting job's partitions it is counted in, and may use."""

    def __init__(self, context: Context, room: PartitionSelector) -> None:
        reading = context.reading
        self._context, self._room = context, room
        self._open = frozenset(node.name for node in reading.nodes if not node.partitions)
        self._nodes: dict[str, set[NodeName]] = defaultdict(set)
        for node in reading.nodes:
            for name in node.partitions:
                self._nodes[name].add(node.name)
        self._found: dict[object, bool] = {}

    def job(self, of: JobFacts) -> tuple[JobReading, SnapshotJob]:
        """The job, waiting ones in the chosen partitions."""
        read, seen = of.read, snapshot_job(of, self._context)
        if "," not in read.partition or seen.job is None or seen.job.running:
            return read, seen
        left, told = self._partitions(seen.job, read)
        if left != read.partition:
            read = replace(read, partition=left)
            seen = snapshot_job(replace(of, read=read), self._context)
        return read, replace(seen, note="; ".join(filter(None, [seen.note, told])))

    def _partitions(self, job: Job, read: JobReading) -> tuple[str, str]:
        """Those that could hold it when idle, of them those with room in their limits; and what to
        tell of the others.
        """
        names = read.partition.split(",")
        able = ",".join(name for name in names if self._could_hold(job, name)) or read.partition
        return self._room.partitions(job, replace(read, partition=able))

    def _could_hold(self, job: Job, partition: str) -> bool:
        key = id(job.throughput), job.reqs, job.rules, partition
        if key not in self._found:
            there, rules = self._open | self._nodes[partition], job.rules
            nodes = there if rules.nodes is None else there & rules.nodes
            one = replace(job, rules=replace(rules, nodes=interned(nodes)))
            self._found[key] = could_run(one, self._context.pools)
        return self._found[key]


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
        Able(pools, remembered=remembered(nodes)),
        Speeds(estimator, nodes),
        RunTimes(knowledge.runs),
        Shortages(knowledge.shortages, reading.now),
        RulesOnNodes([node for node in reading.nodes if node.gpus], settings.cpus_per_gpu),
        TypesNotes(reading.nodes),
        any(node.switches for node in nodes),
        BlockRule.of(reading),
    )


def _on_site(
    job: Job, read: JobReading, partitions: str | Reason, reading: Reading, largest: int
) -> Job | Reason:
    """The job with the GPU counts that the site allows in its open ``partitions``, which ``read``
    has, or why it may have none. A running job is left as it is. ``largest``: the most GPUs of a
    node.
    """
    found: Job | Reason
    if isinstance(partitions, Reason):
        found = partitions
    else:
        found = within_site(job, read, reading.site, largest, reading.now)
    if isinstance(found, Job):
        factors = standing(read, reading.site)
        return replace(found, **factors) if factors else found
    return replace(job, preemptible=False) if job.running else found


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
            switches=_switches(n, racks),
            **_cores_and_memory(n, reading),
        )
        for n in reading.nodes
        if n.usable and n.gpus
    )


def with_racks(reading: Reading, racks: Mapping[NodeName, RackName]) -> Reading:
    """The reading with the racks that the administrator named, where Slurm knows no switches."""
    if not racks:
        return reading
    nodes = (replace(node, switches=_switches(node, racks)) for node in reading.nodes)
    return replace(reading, nodes=tuple(nodes))


def _switches(node: NodeReading, racks: Mapping[NodeName, RackName]) -> tuple[str, ...]:
    """Those that Slurm knows; otherwise the rack that the administrator named."""
    rack = racks.get(host_of(node.name))
    return node.switches or ((rack,) if rack else ())


def _cores_and_memory(node: NodeReading, reading: Reading) -> dict[str, int | None]:
    """Cores and memory, if Slurm reports what is free. On CPU nodes the cores are the devices."""
    found: dict[str, int | None] = {}
    if node.idle_cores is not None and not is_cpu(node.gpu_type):
        found |= {"cores": node.cores, "idle_cores": node.idle_cores}
    if reading.memory.counted and node.memory_mb and node.idle_memory_mb is not None:
        found |= {"memory_mb": node.memory_mb, "idle_memory_mb": node.idle_memory_mb}
    return found

"""The profiling queue: new workloads are measured before they compete (section 3.2).

A waiting job whose workload has no basic times on a GPU type it could use gets one GPU of that
type for some iterations, before the policy plans the other jobs. Waiting jobs with the same
workload share the work: each takes a different type. A failed run is not repeated for a while;
meanwhile the job competes with an assumed speed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace

from hopsd.core.placement.allowances import allowances
from hopsd.core.placement.pools import could_run, could_run_on, pools_of
from hopsd.core.queue.competing import idle_gpus, ledger_of, staying_jobs
from hopsd.core.queue.history import OCCUPYING
from hopsd.core.queue.profile_runs import Pair, ProfilingSettings, adopted, followed, run_summary
from hopsd.core.queue.window import limited
from hopsd.core.submission.comment import Comment
from hopsd.model.allocation import Allocation
from hopsd.model.cluster import Node
from hopsd.model.history import JobRecord
from hopsd.model.ids import GpuType, JobId, NodeName, UserName, job_order
from hopsd.model.job import Job, JobState
from hopsd.model.knowledge import Knowledge
from hopsd.model.plan import Plan, Snapshot
from hopsd.model.profiling import ProfileRun
from hopsd.model.reading import JobReading, Reading, SlurmState
from hopsd.model.reason import Reason
from hopsd.model.rules import Rules, ShapeRule
from hopsd.model.step import Step, StepKind

LEAVE_SECONDS = 10.0
"""A job that has measured enough leaves by itself; after this time it is stopped."""


@dataclass(frozen=True, slots=True)
class Profiling:
    """A plan's profile runs. ``changed``: runs to save; ``steps``: of jobs that begin, leave or
    return to the queue.

    ``snapshot`` is what is left for the policy: without these jobs in the queue, and without their
    GPUs. ``staying``: jobs whose run continues.
    """

    snapshot: Snapshot
    changed: tuple[ProfileRun, ...] = ()
    steps: tuple[Step, ...] = ()
    staying: frozenset[JobId] = frozenset()
    failures: Mapping[JobId, ProfileRun] = field(default_factory=dict)

    @property
    def moving(self) -> frozenset[JobId]:
        return frozenset(step.job for step in self.steps)

    def beside(self, plan: Plan) -> Profiling:
        """Without the runs that do not fit beside ``plan``.

        A policy that never preempts does not free the GPUs that a run counted on.
        """
        free = dict(
            zip((n.name for n in self.snapshot.nodes), idle_gpus(self.snapshot), strict=True)
        )
        for allocation in plan.placements.values():
            for node, gpus in allocation:
                free[node] -= gpus
        no_room = {
            step.job
            for step in self.steps
            if step.kind is StepKind.START and free[step.target.nodes[0]] < 0
        }
        if not no_room:
            return self
        return replace(
            self,
            changed=tuple(
                run
                for run in self.changed
                if run.job not in no_room or run.begin != self.snapshot.now
            ),
            steps=tuple(step for step in self.steps if step.job not in no_room),
        )

    def explained(self, waiting: Mapping[JobId, Reason]) -> dict[JobId, Reason]:
        """Why jobs wait, including what went wrong when they were profiled."""
        return {
            job: replace(reason, text=f"{reason.text}; {run_summary(self.failures[job])}")
            if job in self.failures
            else reason
            for job, reason in waiting.items()
        }


def known_pairs(knowledge: Knowledge, types: Iterable[GpuType], min_records: int) -> set[Pair]:
    """Pairs of workload and GPU type that need no profile run.

    Those with an operator's table (which covers every type), with basic times, or with enough
    records of runs within one server.
    """
    counts = Counter((r.workload, r.gpu_type) for r in knowledge.records if r.nodes == 1)
    return (
        {(workload, gpu_type) for workload in knowledge.tables for gpu_type in types}
        | {(theory.workload, theory.gpu_type) for theory in knowledge.theory}
        | {pair for pair, count in counts.items() if count >= min_records}
    )


def profiling(
    snapshot: Snapshot,
    reading: Reading,
    records: Mapping[JobId, JobRecord],
    comments: Mapping[JobId, Comment],
    runs: Sequence[ProfileRun],
    known: set[Pair],
    settings: ProfilingSettings,
    queue: Sequence[Job] = (),
) -> Profiling:
    """The profile runs of this plan. ``runs``: the open ones and the recent ones.

    ``queue``: the jobs of the snapshot in the plan's order; runs leave the job at its head the GPUs
    that it needs. The order of jobs and of runs changes nothing.
    """
    jobs = {job.id: job for job in reading.jobs}
    old = {(run.job, run.begin): run for run in runs}
    now = {
        (run.job, run.begin): run
        if run.closed
        else followed(_renamed(run, records), jobs.get(run.job), known, reading, settings)
        for run in [*runs, *adopted(runs, reading, records)]
    }
    busy = {run.job: run for run in now.values() if not run.closed}
    recent = [r for r in now.values() if reading.now - (r.end or r.begin) < settings.retry_seconds]
    failures = {run.job: run for run in _in_order(recent) if run.failure and run.closed}
    left = _without(snapshot, busy.keys())
    begun: list[ProfileRun] = []
    if settings.enabled:
        spared = [run for run in recent if run.failure and run.ran]
        done = known | {(run.workload, run.gpu_type) for run in [*spared, *busy.values()]}
        able = [
            job
            for job in left.jobs
            if job.id not in failures and _may_be_profiled(job, jobs[job.id], comments[job.id])
        ]
        types = {node.name: node.gpu_type for node in reading.nodes}
        limits = _Limits(settings, snapshot.nodes, types)
        for run in busy.values():
            limits.count(run.gpu_type, _user(run.job, records))
        begun = _begun_beside_head(left, able, records, jobs, done, types, limits, queue)
    steps = [
        *_leaving(busy.values(), jobs, reading.now),
        *_put_back(jobs.values(), records),
        *(_start(run, settings) for run in begun),
    ]
    on_nodes = {job.id for job in reading.jobs if job.state in OCCUPYING}
    changed = [run for key, run in now.items() if run != old.get(key)]
    return Profiling(
        snapshot=_given(left, begun),
        changed=tuple(_in_order([*changed, *begun])),
        steps=tuple(sorted(steps, key=lambda step: job_order(step.job))),
        staying=frozenset(busy.keys() & on_nodes - {step.job for step in steps}),
        failures=failures,
    )


def _renamed(run: ProfileRun, records: Mapping[JobId, JobRecord]) -> ProfileRun:
    """The run with its workload's current name, which the job's first report may have changed."""
    record = records.get(run.job)
    return replace(run, workload=record.workload) if record else run


def _in_order(runs: Iterable[ProfileRun]) -> list[ProfileRun]:
    return sorted(runs, key=lambda run: (run.begin, job_order(run.job)))


def _leaving(
    busy: Iterable[ProfileRun], jobs: Mapping[JobId, JobReading], now: float
) -> list[Step]:
    """Steps for running jobs that exceed their time, or have measured enough and do not leave."""
    steps = []
    for run in busy:
        job = jobs.get(run.job)
        due = run.failure or (run.end is not None and now - run.end >= LEAVE_SECONDS)
        if due and job is not None and job.state is SlurmState.RUNNING:
            steps.append(Step(run.job, StepKind.PREEMPT, current=job.allocation, profiling=True))
    return steps


def _put_back(jobs: Iterable[JobReading], records: Mapping[JobId, JobRecord]) -> list[Step]:
    """Requeues jobs that failed on one GPU, which says nothing about the GPUs they asked for."""
    return [
        Step(job.id, StepKind.REQUEUE, profiling=True)
        for job in jobs
        if job.failed_profile and job.id in records
    ]


def _may_be_profiled(job: Job, reading: JobReading, comment: Comment) -> bool:
    """Whether a waiting job may be profiled: one that may be stopped and requeued.

    ``preempt=no`` forbids stopping it, ``--no-requeue`` requeueing. Jobs that plain jobs depend on
    are excluded, since Slurm would take a failed profile run for the job's end, and so are scripts
    that always start several ranks on a node, which would fail on one GPU.
    """
    waits = job.state is JobState.WAITING and not job.running
    may_stop = comment.preempt and reading.requeue and not reading.awaited
    scales = (reading.asked.ranks or 1) == 1
    return waits and reading.state is SlurmState.PENDING and may_stop and scales


class _Limits:
    """What all runs together, and those of each user, may take at a time."""

    def __init__(
        self,
        settings: ProfilingSettings,
        nodes: Iterable[Node],
        types: Mapping[NodeName, GpuType],
    ) -> None:
        gpus: Counter[GpuType] = Counter()
        for node in nodes:
            gpus[types[node.name]] += node.gpus
        self._left = {kind: max(1, int(settings.share * count)) for kind, count in gpus.items()}
        self._per_user = settings.runs_per_user
        self._of_user: Counter[UserName] = Counter()

    def copy(self) -> _Limits:
        other = copy(self)
        other._left, other._of_user = dict(self._left), self._of_user.copy()
        return other

    def allow(self, gpu_type: GpuType, user: UserName) -> bool:
        return self._left.get(gpu_type, 0) > 0 and self._of_user[user] < self._per_user

    def count(self, gpu_type: GpuType, user: UserName) -> None:
        self._left[gpu_type] = self._left.get(gpu_type, 0) - 1
        self._of_user[user] += 1


def _user(job: JobId, records: Mapping[JobId, JobRecord]) -> UserName:
    return records[job].user if job in records else UserName("")


def _begun_beside_head(
    snapshot: Snapshot,
    able: Sequence[Job],
    records: Mapping[JobId, JobRecord],
    jobs: Mapping[JobId, JobReading],
    done: set[Pair],
    types: Mapping[NodeName, GpuType],
    limits: _Limits,
    queue: Sequence[Job],
) -> list[ProfileRun]:
    """New runs that leave the head of the queue what it needs.

    The head is the first job that could run, also under the site's limits, and does not begin a run
    itself.
    """
    pools = pools_of(snapshot.nodes)
    could = [job for job in queue if could_run(job, pools)]
    gpus = sum(node.gpus for node in snapshot.nodes)
    over = limited(could, gpus, allowances(snapshot.limits, staying_jobs(snapshot)))
    grant_in_order = sorted(able, key=lambda job: (job.submit, job_order(job.id)))
    begun: list[ProfileRun] = []
    heads: set[JobId] = set()
    for head in [*(job for job in could if job.id not in over), None]:
        room = _Room(snapshot, head, heads)
        begun = _begun(snapshot, grant_in_order, records, jobs, done, types, limits.copy(), room)
        if head is None or all(run.job != head.id for run in begun):
            break
        heads.add(head.id)
        grant_in_order.sort(key=lambda job: job.id not in heads)
    return begun


def _begun(
    snapshot: Snapshot,
    grant_in_order: Iterable[Job],
    records: Mapping[JobId, JobRecord],
    jobs: Mapping[JobId, JobReading],
    done: set[Pair],
    types: Mapping[NodeName, GpuType],
    limits: _Limits,
    room: _Room,
) -> list[ProfileRun]:
    """New runs: at most one per job, and one per workload and type.

    ``types``: the nodes' GPU types; those in the snapshot may be split by partition.
    """
    pools = pools_of(snapshot.nodes)
    type_of = {node.gpu_type: types[node.name] for node in snapshot.nodes}
    taken = set(done)
    begun = []
    for job in grant_in_order:
        workload = records[job.id].workload
        for pool in pools.values():
            pair = workload, type_of[pool.gpu_type]
            user = records[job.id].user
            if pair in taken or not could_run_on(job, pool) or not limits.allow(pair[1], user):
                continue
            node = room.take(pool.gpu_type, job)
            if node is not None:
                taken.add(pair)
                limits.count(pair[1], user)
                run = jobs[job.id].restarts
                begun.append(ProfileRun(job.id, run, *pair, node, snapshot.now))
                break
    return begun


class _Room:
    """Single GPUs for profile runs: idle ones and, at a round's start, those of competing jobs.

    The node with the fewest free GPUs is taken, to limit fragmentation. ``head``: a job whose
    smallest requirement must still fit afterwards; runs of ``heads``, which were ahead of it, are
    exempt.
    """

    def __init__(self, snapshot: Snapshot, head: Job | None, heads: Collection[JobId]) -> None:
        self._nodes = snapshot.nodes
        self._idle = {node.name: node.idle for node in snapshot.nodes}
        names = [node.name for node in snapshot.nodes]
        self._free = dict(zip(names, idle_gpus(snapshot), strict=True))
        self._ledger = ledger_of(snapshot)
        self._head, self._heads = head, {*heads, *([head.id] if head else [])}
        self._kept = set() if head is None or self._holds(head) else self._next_for(head)

    def _holds(self, head: Job) -> bool:
        """Whether the free GPUs could hold the job's smallest requirement."""
        free: dict[GpuType, list[int]] = defaultdict(list)
        for node in self._nodes:
            free[node.gpu_type].append(max(0, self._free[node.name]))
        return any(
            max(free[gpu_type], default=0) >= min(head.reqs)
            or (bool(table.distributed) and sum(free[gpu_type]) >= min(head.reqs))
            for gpu_type, table in head.throughput.items()
        )

    def _next_for(self, head: Job) -> set[NodeName]:
        """The servers that the job waits for: of each type the emptiest ones that could hold it."""
        kept: set[NodeName] = set()
        for gpu_type, table in head.throughput.items():
            nodes = [node for node in self._nodes if node.gpu_type == gpu_type]
            nodes.sort(key=lambda node: -self._free[node.name])
            if whole := [node for node in nodes if node.gpus >= min(head.reqs)]:
                kept.add(whole[0].name)
            elif table.distributed:
                kept.update(node.name for node in nodes)
        return kept

    def _may_give(self, node: NodeName, job: Job) -> bool:
        if self._head is None or job.id in self._heads:
            return True
        if self._kept:
            return node not in self._kept
        self._free[node] -= 1
        left = self._holds(self._head)
        self._free[node] += 1
        return left

    def take(self, gpu_type: GpuType, job: Job) -> NodeName | None:
        """Take one GPU for ``job`` within its rules and limits; None: no server has one.

        Rules about the job's shape do not matter here.
        """
        one = replace(job, rules=replace(job.rules, shape=ShapeRule.ANY, per_node=None))
        names = [
            node.name
            for node in self._nodes
            if node.gpu_type == gpu_type
            and self._may_give(node.name, job)
            and self._ledger.may(one, Allocation(((node.name, 1),)))
        ]
        idle = [name for name in names if min(self._idle[name], self._free[name]) > 0]
        held = [name for name in names if self._free[name] > 0]
        if not held:
            return None
        node = (
            min(idle, key=self._idle.__getitem__) if idle else max(held, key=self._free.__getitem__)
        )
        self._idle[node] -= 1
        self._free[node] -= 1
        self._ledger.take(one, Allocation(((node, 1),)))
        return node


def _start(run: ProfileRun, settings: ProfilingSettings) -> Step:
    target = Allocation.of({run.node: 1})
    return Step(
        run.job, StepKind.START, target=target, profiling=True, iterations=settings.iterations
    )


def _beside(node: Node, held: Sequence[Rules]) -> Node:
    """The node as it is while profile runs of jobs with these rules hold a GPU each."""
    if node.cores is not None:
        idle = node.cores if node.idle_cores is None else node.idle_cores
        node = replace(node, idle_cores=idle - sum(rules.cores(1) for rules in held))
    if node.memory_mb is not None:
        free = node.memory_mb if node.idle_memory_mb is None else node.idle_memory_mb
        free -= float(sum(rules.memory_mb(1) for rules in held))
        node = replace(node, idle_memory_mb=free)
    return replace(node, idle=node.idle - len(held))


def _without(snapshot: Snapshot, busy: Collection[JobId]) -> Snapshot:
    """The snapshot with jobs in a profile run out of the queue; they keep what they hold."""
    if not busy:
        return snapshot
    jobs = tuple(
        replace(job, state=JobState.PROFILING) if job.id in busy else job for job in snapshot.jobs
    )
    return replace(snapshot, jobs=jobs)


def _given(snapshot: Snapshot, begun: Sequence[ProfileRun]) -> Snapshot:
    """The snapshot as if ``begun`` were running. A node's ``idle`` is negative if competing jobs
    have to make room.
    """
    if not begun:
        return snapshot
    where = {run.job: Allocation.of({run.node: 1}) for run in begun}
    rules = {job.id: job.rules for job in snapshot.jobs}
    held: dict[NodeName, list[Rules]] = defaultdict(list)
    for run in begun:
        held[run.node].append(rules[run.job])
    return replace(
        snapshot,
        nodes=tuple(_beside(node, held[node.name]) for node in snapshot.nodes),
        jobs=tuple(
            replace(job, state=JobState.PROFILING, running=where[job.id])
            if job.id in where
            else job
            for job in snapshot.jobs
        ),
    )

"""Chooses the waiting jobs that start a profile run, and their GPUs.

Runs take few GPUs at a time and leave enough for the job at the head of the queue.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace

from hopsd.core.placement.pools import Pools, could_run, could_run_on, pools_of
from hopsd.core.placement.remaining_limits import limits_after
from hopsd.core.queue.competing import idle_gpus, ledger_of, staying_jobs
from hopsd.core.queue.profile_runs import Pair, ProfilingSettings
from hopsd.core.queue.service_window import blocking_limits
from hopsd.model.allocation import Allocation
from hopsd.model.history import ProfileRun
from hopsd.model.ids import GpuType, JobId, NodeName, UserName, WorkloadName, job_order
from hopsd.model.job import Job, Node
from hopsd.model.plan import Snapshot
from hopsd.model.rules import ShapeRule


@dataclass(frozen=True, slots=True)
class Candidate:
    """A waiting job that may be profiled. ``run``: the job's restart count in Slurm."""

    job: Job
    user: UserName
    workload: WorkloadName
    run: int

    @property
    def id(self) -> JobId:
        return self.job.id


class RunQuota:
    """Limits the GPUs of all runs together, and the runs of each user, at any one time.

    ``types``: the nodes' GPU types in Slurm; those in a snapshot may be split by partition.
    """

    def __init__(
        self,
        settings: ProfilingSettings,
        nodes: Iterable[Node],
        types: Mapping[NodeName, GpuType],
    ) -> None:
        gpus: Counter[GpuType] = Counter()
        self.type_of: dict[GpuType, GpuType] = {}
        for node in nodes:
            gpus[types[node.name]] += node.gpus
            self.type_of[node.gpu_type] = types[node.name]
        self._remaining_gpus = {
            kind: max(1, int(settings.share * count)) for kind, count in gpus.items()
        }
        self._per_user = settings.runs_per_user
        self._runs_by_user: Counter[UserName] = Counter()

    def copy(self) -> RunQuota:
        quota = copy(self)
        quota._remaining_gpus = dict(self._remaining_gpus)
        quota._runs_by_user = self._runs_by_user.copy()
        return quota

    def allows(self, gpu_type: GpuType, user: UserName) -> bool:
        has_gpus = self._remaining_gpus.get(gpu_type, 0) > 0
        return has_gpus and self._runs_by_user[user] < self._per_user

    def count(self, gpu_type: GpuType, user: UserName) -> None:
        self._remaining_gpus[gpu_type] = self._remaining_gpus.get(gpu_type, 0) - 1
        self._runs_by_user[user] += 1


def runs_to_begin(
    snapshot: Snapshot,
    candidates: Iterable[Candidate],
    measured_pairs: Collection[Pair],
    quota: RunQuota,
    queue: Sequence[Job],
) -> list[ProfileRun]:
    """Return new runs that leave enough GPUs for the head of the ``queue``.

    The head is the first job that could run, also under the site's limits, and does not begin a run
    itself. ``measured_pairs``: pairs of workload and GPU type that need no run.
    """
    pools = pools_of(snapshot.nodes)
    sorted_candidates = sorted(candidates, key=lambda c: (c.job.submit, job_order(c.id)))
    runs: list[ProfileRun] = []
    heads: set[JobId] = set()
    for head in [*_could_start(queue, snapshot, pools), None]:
        gpus = _SingleGpus(snapshot, head, heads)
        grants = _grants(sorted_candidates, pools, measured_pairs, quota.copy(), gpus)
        runs = [ProfileRun(c.id, c.run, *pair, node, snapshot.now) for c, pair, node in grants]
        if head is None or all(run.job != head.id for run in runs):
            break
        heads.add(head.id)
        sorted_candidates.sort(key=lambda c: c.id not in heads)
    return runs


def _could_start(queue: Sequence[Job], snapshot: Snapshot, pools: Pools) -> list[Job]:
    """Return the jobs that an idle cluster could run, without those that are at a limit."""
    runnable = [job for job in queue if could_run(job, pools)]
    gpus = sum(node.gpus for node in snapshot.nodes)
    at_limit = blocking_limits(
        runnable, gpus, limits_after(snapshot.limits, staying_jobs(snapshot))
    )
    return [job for job in runnable if job.id not in at_limit]


def _grants(
    candidates: Iterable[Candidate],
    pools: Pools,
    measured_pairs: Collection[Pair],
    quota: RunQuota,
    gpus: _SingleGpus,
) -> Iterator[tuple[Candidate, Pair, NodeName]]:
    """Yield the candidates that get a GPU: at most one per job, and one per workload and type."""
    covered_pairs = set(measured_pairs)
    for candidate in candidates:
        for pool in pools.values():
            pair = candidate.workload, quota.type_of[pool.gpu_type]
            if (
                pair in covered_pairs
                or not could_run_on(candidate.job, pool)
                or not quota.allows(pair[1], candidate.user)
            ):
                continue
            node = gpus.take(pool.gpu_type, candidate.job)
            if node is not None:
                covered_pairs.add(pair)
                quota.count(pair[1], candidate.user)
                yield candidate, pair, node
                break


class _SingleGpus:
    """Single GPUs for profile runs: idle ones and, at a round's start, those of competing jobs.

    The node with the fewest free GPUs is taken, to limit fragmentation. ``head``: a job whose
    smallest requirement must still fit afterwards; runs of ``heads``, which were ahead of the head,
    are exempt.
    """

    def __init__(self, snapshot: Snapshot, head: Job | None, heads: Collection[JobId]) -> None:
        self._nodes = snapshot.nodes
        self._idle = {node.name: node.idle for node in snapshot.nodes}
        names = [node.name for node in snapshot.nodes]
        self._free = dict(zip(names, idle_gpus(snapshot), strict=True))
        self._ledger = ledger_of(snapshot)
        self._head, self._heads = head, {*heads, *([head.id] if head else [])}
        fits = head is None or self._holds(head)
        self._reserved_nodes = set() if head is None or fits else self._awaited_by(head)

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

    def _awaited_by(self, head: Job) -> set[NodeName]:
        """Return the servers that the job waits for: by type, the emptiest that could hold it."""
        names: set[NodeName] = set()
        for gpu_type, table in head.throughput.items():
            nodes = [node for node in self._nodes if node.gpu_type == gpu_type]
            nodes.sort(key=lambda node: -self._free[node.name])
            if large_enough := [node for node in nodes if node.gpus >= min(head.reqs)]:
                names.add(large_enough[0].name)
            elif table.distributed:
                names.update(node.name for node in nodes)
        return names

    def _may_give(self, node: NodeName, job: Job) -> bool:
        """Whether the head could still start, or has no claim on this node."""
        if self._head is None or job.id in self._heads:
            return True
        if self._reserved_nodes:
            return node not in self._reserved_nodes
        self._free[node] -= 1
        still_fits = self._holds(self._head)
        self._free[node] += 1
        return still_fits

    def take(self, gpu_type: GpuType, job: Job) -> NodeName | None:
        """Take one GPU for ``job`` within its rules and limits; return None if no server has one.

        Rules about the job's shape do not matter here.
        """
        single = replace(job, rules=replace(job.rules, shape=ShapeRule.ANY, per_node=None))
        names = [
            node.name
            for node in self._nodes
            if node.gpu_type == gpu_type
            and self._may_give(node.name, job)
            and self._ledger.may(single, Allocation(((node.name, 1),)))
        ]
        idle = [name for name in names if min(self._idle[name], self._free[name]) > 0]
        free = [name for name in names if self._free[name] > 0]
        if not free:
            return None
        node = (
            min(idle, key=self._idle.__getitem__) if idle else max(free, key=self._free.__getitem__)
        )
        self._idle[node] -= 1
        self._free[node] -= 1
        self._ledger.take(single, Allocation(((node, 1),)))
        return node

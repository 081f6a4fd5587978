"""Where Slurm lets a job run: in its partitions, on nodes that are not reserved before its end."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import floor

from hopsd.model.ids import GpuType, NodeName, host_of
from hopsd.model.reading import JobReading, NodeReading, Reading

START_SECONDS = 60.0
"""Time from a plan to the start of a job whose time limit is cut before a reservation."""


def shortened_minutes(job: JobReading, nodes: Iterable[NodeReading], now: float) -> int | None:
    """Return the time limit with which a job ends before the nodes are reserved.

    Returns None if the job does not allow a shorter one (``--time-min``) or does not need it.
    """
    min_seconds, limit = job.options.time_min_seconds, job.time_limit_seconds
    starts = [node.reserved_from for node in nodes if node.reserved_from is not None]
    if min_seconds is None or not starts:
        return None
    seconds = min(starts) - now
    if limit is not None and limit <= seconds:
        return None
    return floor(max(min_seconds, seconds - START_SECONDS) / 60)


class Access:
    """The nodes that are open to each job; jobs with equal requests share the answer.

    ``idle``: GPUs that a plan may give on each node.
    """

    def __init__(self, reading: Reading, idle: Mapping[NodeName, int]) -> None:
        self._nodes = {node.name: node for node in reading.nodes}
        self._now = reading.now
        self._idle = idle
        self._until = sorted({n.reserved_from for n in reading.nodes if n.reserved_from})
        self._node_sets: dict[object, frozenset[NodeName]] = {}

    def nodes(self, job: JobReading, min_gpus: int = 1) -> frozenset[NodeName]:
        """Return the nodes where Slurm would start the job, all usable in one placement.

        Slurm takes all nodes of a job from one partition and one reservation. If the job may use
        several, the one that can hold ``min_gpus`` GPUs and has the most free GPUs on nodes that it
        names (``--nodelist``) is chosen, per GPU type, since no placement mixes types.
        """
        type_nodes = self._open_nodes(job, min_gpus, self._end(job))
        if job.options.time_min_seconds is None or self._free(type_nodes) >= min_gpus:
            return type_nodes
        return self._open_nodes(job, min_gpus, self._least_end(job))

    def _open_nodes(self, job: JobReading, min_gpus: int, end: float) -> frozenset[NodeName]:
        """Return the nodes for a run that ends at ``end`` (epoch)."""
        is_one = "," not in job.partition and len(job.reservations) == 1
        several, named_nodes = (1, None) if is_one else (min_gpus, job.options.nodes)
        kind, before = job.options.gpu_type, bisect_left(self._until, end)
        key = job.partition, job.reservations, before, kind, several, named_nodes
        if key not in self._node_sets:
            by_type: dict[GpuType, list[NodeReading]] = defaultdict(list)
            for node in self._nodes.values():
                if kind in (None, node.gpu_type) and self._open(job, node, end):
                    by_type[node.gpu_type].append(node)
            self._node_sets[key] = frozenset(
                node.name
                for type_nodes in by_type.values()
                for node in self._in_one(job, type_nodes, several)
            )
        return self._node_sets[key]

    def take_back(self, job: JobReading) -> bool:
        """Whether Slurm would start a running job again where it runs now."""
        nodes = [self._nodes.get(name) for name in job.allocation.nodes]
        end = self._end(job)
        return all(node is not None and self._open(job, node, end) for node in nodes)

    def _free(self, nodes: Collection[NodeName]) -> int:
        """Return the number of idle GPUs of the type that has the most."""
        free: Counter[GpuType] = Counter()
        for name in nodes:
            free[self._nodes[name].gpu_type] += max(0, self._idle.get(name, 0))
        return max(free.values(), default=0)

    def _end(self, job: JobReading) -> float:
        seconds = job.time_limit_seconds
        return float("inf") if seconds is None else self._now + seconds

    def _least_end(self, job: JobReading) -> float:
        """Return the end of a run as short as ``--time-min`` allows, after START_SECONDS."""
        seconds = job.options.time_min_seconds
        full_end = self._end(job)
        return full_end if seconds is None else min(full_end, self._now + START_SECONDS + seconds)

    def _open(self, job: JobReading, node: NodeReading, end: float) -> bool:
        """Whether the node is open to the job, whose time limit must end before any reservation."""
        if node.reserved_from is not None and end > node.reserved_from:
            return False
        if set(node.reservation.split(",")).isdisjoint(job.reservations):
            return False
        partitions = job.partition.split(",")
        return not node.partitions or not set(partitions).isdisjoint(node.partitions)

    def _in_one(
        self, job: JobReading, nodes: Sequence[NodeReading], min_gpus: int
    ) -> Sequence[NodeReading]:
        choices = [
            [
                node
                for node in nodes
                if (not node.partitions or name in node.partitions)
                and reservation in node.reservation.split(",")
            ]
            for name in job.partition.split(",")
            for reservation in job.reservations
        ]

        def worth(choice: Sequence[NodeReading]) -> tuple[int, int, int]:
            if (named_nodes := job.options.nodes) is not None:
                choice = [node for node in choice if host_of(node.name) in named_nodes]
            total = sum(node.gpus for node in choice if node.usable)
            free = sum(max(0, self._idle.get(node.name, 0)) for node in choice)
            return min(total, min_gpus), free, total

        return max(choices, key=worth)

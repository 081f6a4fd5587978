"""What a plan may assign on each node: GPUs, cores and memory, and to which jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor

import numpy as np

from hopsd.model.arrays import Bools, Ints
from hopsd.model.job import Job, Node
from hopsd.model.rules import Rules, exact

NO_LIMIT = 2**50
"""An upper limit on cores and memory, which also stands for an unknown count."""

# Half of the range of 64 bits: the difference of two such numbers never overflows.
_WIDEST = 2**62

MEMORY_UNIT = 1000
"""Memory is counted in thousandths of a MB: whole numbers add up exactly."""


def kept_to_counts(job: Job) -> Job:
    """Return the job with the GPU counts that its rules allow; without nodes if none is left."""
    counts = job.rules.counts(job.reqs)
    if not counts:
        return replace(job, rules=replace(job.rules, nodes=frozenset()))
    return job if counts == job.reqs else replace(job, reqs=counts)


def cores_of(rules: Rules, gpus: Ints) -> Ints:
    """Return how many cores each entry of ``gpus``, GPUs on a node, takes there."""
    return _by_distinct_value(gpus, lambda count: min(rules.cores(count), NO_LIMIT))


def memory_of(rules: Rules, gpus: Ints) -> Ints:
    """Return how much memory (in MEMORY_UNIT) each entry of ``gpus``, 1 or more, takes there."""
    return _by_distinct_value(
        gpus, lambda count: min(ceil(rules.memory_mb(count) * MEMORY_UNIT), NO_LIMIT)
    )


def _by_distinct_value(values: Ints, function: Callable[[int], int]) -> Ints:
    """Apply ``function`` to each value, but only once to equal values."""
    distinct, inverse = np.unique(values, return_inverse=True)
    return np.array([function(value) for value in distinct.tolist()], dtype=np.int64)[
        inverse.ravel()
    ]


@dataclass(frozen=True, slots=True)
class AvailableResources:
    """What a plan may assign on each node; all arrays are (nodes,), in the cluster's order.

    ``gpus``, ``cores`` and ``memory`` (in MEMORY_UNIT) are idle. ``alone``: no staying job has a
    GPU or core there, so an exclusive job fits. ``closed_nodes``: an exclusive job stays there.
    """

    nodes: Sequence[Node]
    gpus: Ints
    cores: Ints
    memory: Ints
    alone: Bools
    closed_nodes: Bools
    _usable: dict[Rules, Ints] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def idle(cls, nodes: Sequence[Node]) -> AvailableResources:
        """Return all resources of an idle cluster."""
        cores, memory = _totals(nodes)
        count = len(nodes)
        gpus = np.array([node.gpus for node in nodes], dtype=np.int64)
        yes = np.ones(count, dtype=np.bool_)
        return cls(nodes, gpus, cores, memory, yes, ~yes)

    @classmethod
    def from_jobs(
        cls, nodes: Sequence[Node], moving_jobs: Iterable[Job], staying_jobs: Iterable[Job]
    ) -> AvailableResources:
        """Return what is idle or held by running ``moving_jobs``; ``staying_jobs`` keep theirs."""
        occupancy = _Occupancy(nodes)
        for job in staying_jobs:
            occupancy.stays(job)
        for job in moving_jobs:
            occupancy.moves(job)
        total_cores, total_memory = _totals(nodes)
        for i in occupancy.emptied_nodes:
            occupancy.cores[i] = max(occupancy.cores[i], total_cores[i] - occupancy.kept_cores[i])
            occupancy.memory[i] = max(
                occupancy.memory[i], total_memory[i] - occupancy.kept_memory[i]
            )
        cores, memory = (
            np.minimum(occupancy.cores, total_cores),
            np.minimum(occupancy.memory, total_memory),
        )
        capacity = np.array([node.gpus for node in nodes], dtype=np.int64)
        alone = (occupancy.gpus >= capacity) & (cores >= total_cores)
        return cls(nodes, occupancy.gpus, cores, memory, alone, occupancy.closed_nodes)

    def with_gpus(self, gpus: Ints) -> AvailableResources:
        """Return a copy with fewer idle ``gpus`` (nodes,); nodes with fewer are not ``alone``."""
        return replace(self, gpus=gpus, alone=self.alone & (gpus >= self.gpus), _usable={})

    def allowed_nodes(self, rules: Rules) -> Bools:
        """Whether a job with these rules may ever use each node, (nodes,)."""
        if rules.nodes is None:
            return np.ones(len(self.nodes), dtype=np.bool_)
        return np.array([node.name in rules.nodes for node in self.nodes], dtype=np.bool_)

    def usable_gpus(self, rules: Rules) -> Ints:
        """Return S_t: how many GPUs a job with these rules could take on each node, (nodes,)."""
        if rules not in self._usable:
            unusable = self.closed_nodes | ~self.alone if rules.exclusive else self.closed_nodes
            unusable = unusable | ~self.allowed_nodes(rules)
            usable = np.minimum(self.gpus, _gpus_by_cores(rules, self.cores))
            usable = np.minimum(usable, _gpus_by_memory(rules, self.memory))
            if rules.max_per_node is not None:
                usable = np.minimum(usable, rules.max_per_node)
            self._usable[rules] = np.where(unusable, 0, np.maximum(usable, 0))
        return self._usable[rules]


def _gpus_by_cores(rules: Rules, cores: Ints) -> Ints:
    cores_per_gpu = exact(rules.cores_per_gpu)
    return (
        count_fits(cores, Fraction(0), cores_per_gpu)
        if cores_per_gpu
        else np.full(len(cores), NO_LIMIT)
    )


def _gpus_by_memory(rules: Rules, memory: Ints) -> Ints:
    memory_per_gpu = exact(rules.memory_mb_per_gpu) * MEMORY_UNIT
    base = exact(rules.memory_mb_per_node) * MEMORY_UNIT
    if not memory_per_gpu:
        return np.where(memory >= min(ceil(base), NO_LIMIT), NO_LIMIT, 0)
    return count_fits(memory, base, memory_per_gpu)


def count_fits(idle: Ints, base: Fraction, per_gpu: Fraction) -> Ints:
    """Return how often ``per_gpu`` (> 0) fits into ``idle`` - ``base`` (nodes,), up to NO_LIMIT."""
    scale, base_amount = (
        base.denominator * per_gpu.denominator,
        base.numerator * per_gpu.denominator,
    )
    unit = per_gpu.numerator * base.denominator
    if max(scale * NO_LIMIT, base_amount, unit) < _WIDEST:
        return np.clip((idle * scale - base_amount) // unit, 0, NO_LIMIT)
    return _by_distinct_value(
        idle, lambda count: max(0, min(floor((count - base) / per_gpu), NO_LIMIT))
    )


class _Occupancy:
    """What is free on each node, in arrays (nodes,) that are updated job by job."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._at = {node.name: i for i, node in enumerate(nodes)}
        self.gpus = np.array([node.idle for node in nodes], dtype=np.int64)
        self.cores, self.memory = _idle(nodes)
        self.closed_nodes = np.zeros(len(nodes), dtype=np.bool_)
        self.kept_cores, self.kept_memory = np.zeros_like(self.cores), np.zeros_like(self.cores)
        self.emptied_nodes: set[int] = set()

    def stays(self, job: Job) -> None:
        for i, _, cores, memory in self._parts(job):
            self.closed_nodes[i] |= job.rules.exclusive
            self.kept_cores[i] += cores
            self.kept_memory[i] += memory

    def moves(self, job: Job) -> None:
        for i, gpus, cores, memory in self._parts(job):
            self.gpus[i] += gpus
            self.cores[i] += cores
            self.memory[i] += memory
            if job.rules.exclusive:
                self.emptied_nodes.add(i)

    def _parts(self, job: Job) -> Iterator[tuple[int, int, int, int]]:
        """Yield node, GPUs, cores and memory of the job's allocation on nodes of the snapshot."""
        for name, gpus in job.running:
            if name in self._at:
                yield self._at[name], gpus, *_cores_and_memory(job.rules, gpus)


@lru_cache(maxsize=4096)
def _cores_and_memory(rules: Rules, gpus: int) -> tuple[int, int]:
    """Return the cores and the memory that ``gpus`` GPUs on a node take.

    The result is cached, since a thousand running jobs have only a few kinds of rules, and
    computing with fractions took a third of a further plan.
    """
    memory = ceil(rules.memory_mb(gpus) * MEMORY_UNIT)
    return min(rules.cores(gpus), NO_LIMIT), min(memory, NO_LIMIT)


def _totals(nodes: Iterable[Node]) -> tuple[Ints, Ints]:
    return _counts([(node.cores, node.memory_mb) for node in nodes])


def _idle(nodes: Iterable[Node]) -> tuple[Ints, Ints]:
    return _counts(
        [
            (
                node.cores if node.idle_cores is None else node.idle_cores,
                node.memory_mb if node.idle_memory_mb is None else node.idle_memory_mb,
            )
            for node in nodes
        ]
    )


def _counts(pairs: Sequence[tuple[int | None, float | None]]) -> tuple[Ints, Ints]:
    """Return cores, and memory in MEMORY_UNIT."""
    cores = [NO_LIMIT if c is None else min(c, NO_LIMIT) for c, _ in pairs]
    memory = [NO_LIMIT if mb is None else floor(min(mb * MEMORY_UNIT, NO_LIMIT)) for _, mb in pairs]
    return np.array(cores, dtype=np.int64), np.array(memory, dtype=np.int64)

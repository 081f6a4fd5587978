"""What a job's script and its site allow: shapes, nodes, cores, memory and limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from math import ceil

from hopsd.model.ids import GpuType, JobId, NodeName


class ShapeRule(StrEnum):
    """How a job's GPUs may be distributed over servers.

    ``ANY``: also unevenly, as in the paper; ``EVEN``: the same number on each server; ``NODE``: on
    one server.
    """

    ANY = "any"
    EVEN = "even"
    NODE = "node"


@dataclass(frozen=True, slots=True)
class Rules:
    """Constraints on the placements of one job; the defaults allow any.

    ``nodes``: the only servers that the job may use, None for all. ``per_node`` (with ``EVEN``):
    the exact number of GPUs on each server. ``exclusive``: only servers where no other job has a
    GPU or core. ``max_nodes``: the maximum number of servers; ``max_per_node``: the maximum number
    of GPUs on each; None if unlimited. ``min_gpus``: by GPU type, the minimum number of GPUs if it
    is not 1, since the job ran out of memory with fewer. ``segment``: the exact number of servers
    in a group, each group on one leaf switch; fewer servers than one group are all on one leaf.
    ``spread_segments``: each group is on a leaf of its own; ``consolidate_segments``: all groups
    are below one switch of the lowest level that has a switch with enough servers.
    ``max_switches``: the maximum number of leaves. With ``segment`` or ``max_switches``, the
    servers need not be neighbours.
    On each node a placement takes ``cores_per_gpu`` times its GPUs there, rounded up to whole
    cores, and ``memory_mb_per_gpu`` times its GPUs there plus ``memory_mb_per_node``.

    Raises:
        ValueError: ``per_node`` without ``EVEN``, or a count below 1.
    """

    nodes: frozenset[NodeName] | None = None
    shape: ShapeRule = ShapeRule.ANY
    per_node: int | None = None
    exclusive: bool = False
    cores_per_gpu: float = 0.0
    memory_mb_per_gpu: float = 0.0
    memory_mb_per_node: float = 0.0
    max_nodes: int | None = None
    max_per_node: int | None = None
    min_gpus: tuple[tuple[GpuType, int], ...] = ()
    segment: int | None = None
    max_switches: int | None = None
    spread_segments: bool = False
    consolidate_segments: bool = False

    def __post_init__(self) -> None:
        if self.per_node is not None and (self.shape is not ShapeRule.EVEN or self.per_node < 1):
            raise ValueError(f"per_node={self.per_node} with shape {self.shape.value}")
        for limit in (self.max_nodes, self.max_per_node):
            if limit is not None and limit < 1:
                raise ValueError(f"at most {limit} servers, or GPUs on each")
        for count in (self.segment, self.max_switches):
            if count is not None and count < 1:
                raise ValueError(f"segments of {count} servers, or at most {count} leaf switches")

    @property
    def rack_bound(self) -> bool:
        """Whether it matters which leaf switches the servers are on."""
        return self.segment is not None or self.max_switches is not None

    def counts(self, reqs: Iterable[int]) -> tuple[int, ...]:
        """Return the GPU counts of ``reqs`` that ``per_node`` allows."""
        return tuple(r for r in reqs if self.per_node is None or r % self.per_node == 0)

    def enough(self, gpu_type: GpuType, gpus: int) -> bool:
        """Whether ``gpus`` GPUs of a type have enough memory for the job."""
        return all(gpus >= min_count for name, min_count in self.min_gpus if name == gpu_type)

    def cores(self, gpus: int) -> int:
        """Return the cores that ``gpus`` GPUs on a node take, exact for the decimal as written."""
        return ceil(exact(self.cores_per_gpu) * gpus)

    def memory_mb(self, gpus: int) -> Fraction:
        """Return the memory that ``gpus`` (1 or more) GPUs on a node take."""
        return exact(self.memory_mb_per_gpu) * gpus + exact(self.memory_mb_per_node)


@lru_cache(maxsize=256)
def intern_nodes(nodes: frozenset[NodeName]) -> frozenset[NodeName]:
    """Return the first of equal sets.

    Caches keyed by rules compare them, which takes 0.3 ms for two sets of 5,000 names; sharing one
    set also saves memory.
    """
    return nodes


@lru_cache(maxsize=4096)
def exact(number: float) -> Fraction:
    """Return the decimal number as written: ``Fraction(0.1)`` is not a tenth.

    The result is cached, since many jobs ask for the same number, and parsing the text takes a
    tenth of the time of a further plan with 1,000 jobs.
    """
    return Fraction(str(number))


ANYWHERE = Rules()
"""The rules of a job without constraints."""


@dataclass(frozen=True, slots=True)
class Limit:
    """``jobs`` together hold at most ``gpus`` GPUs, and at most ``count`` of them run.

    A bound is None if there is none. GPUs that running jobs keep count, too. ``name`` is shown to
    users.

    ``per_gpu``: how much each GPU of a job takes, if that is not 1; the limit is then in ``unit``
    (CPUs, memory, minutes), multiplied by ``scale`` if jobs take fractions of a unit.

    ``exempt``: jobs that may start beyond the bound, but use it up when they do: Slurm then starts
    no other job beyond it. What running exempt jobs hold is already subtracted.
    """

    name: str
    jobs: frozenset[JobId]
    gpus: int | None = None
    count: int | None = None
    per_gpu: Mapping[JobId, int] = field(default_factory=dict, hash=False)
    unit: str = "GPUs"
    scale: int = 1
    exempt: frozenset[JobId] = frozenset()

    def amount(self, job: JobId, gpus: int) -> int:
        """Return how much of the limit ``gpus`` GPUs of ``job`` take."""
        return gpus * self.per_gpu.get(job, 1)

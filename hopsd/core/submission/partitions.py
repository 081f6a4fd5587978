"""Where Slurm lets a job run: its partitions, on nodes not reserved before it would end.

Policies know GPU types alone. So where this parts the servers of a GPU type, each part is a type
of its own in the snapshot, and a job has tables for the parts that are open to it. No placement
lies across two parts: Slurm takes all nodes of a job from one partition.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from hopsd.model.ids import GpuType, NodeName
from hopsd.model.reading import JobReading, NodeReading, Reading

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """What servers have in common. ``partitions``: those that some job asks for; None: open to
    every job. ``until``: when they are reserved, None: never. ``reservations`` that they are in.
    """

    partitions: frozenset[str] | None
    until: float | None
    reservations: str = ""

    def allow(self, job: JobReading, now: float) -> bool:
        """Whether a job's time limit ends before the reservation begins, as Slurm demands."""
        seconds = job.time_limit_seconds
        if self.until is not None and (seconds is None or now + seconds > self.until):
            return False
        if self.reservations or job.reservation:
            inside = set(self.reservations.split(","))
            if inside.isdisjoint(job.reservation.split(",")):
                return False
        return self.partitions is None or not self.partitions.isdisjoint(_asked(job.partition))

    def __str__(self) -> str:
        words = sorted(self.partitions or ())
        if self.until is not None:
            words.append(f"reserved from {datetime.fromtimestamp(self.until, UTC):%F %T} UTC")
        if self.reservations:
            words.append(f"in reservation {self.reservations}")
        return ", ".join(words) or "elsewhere"


@dataclass(frozen=True, slots=True)
class Part:
    """Servers of ``gpu_type`` with the same limits; ``name`` is their type's name in a plan."""

    name: GpuType
    gpu_type: GpuType
    limits: Limits


@dataclass(frozen=True, slots=True)
class Parts:
    """The part of every node at time ``now``. ``limited``: whether some job is barred from some of
    them.
    """

    of_node: Mapping[NodeName, Part]
    distinct: tuple[Part, ...]
    limited: bool
    now: float

    def open_to(self, job: JobReading) -> tuple[Part, ...]:
        """The parts where Slurm would start the job."""
        kind = job.asked.gpu_type
        parts = [part for part in self.distinct if kind in (None, part.gpu_type)]
        if not self.limited and not job.reservation:
            return tuple(parts)
        return tuple(part for part in parts if part.limits.allow(job, self.now))

    def take_back(self, job: JobReading) -> bool:
        """Whether Slurm would start a running job again where it is."""
        parts = [self.of_node.get(node) for node in job.allocation.nodes]
        return all(part is not None and part.limits.allow(job, self.now) for part in parts)


def by_part(by_type: Mapping[GpuType, T], parts: Iterable[Part]) -> dict[GpuType, T]:
    """Data by GPU type, repeated for each of the ``parts`` of a type."""
    return {part.name: by_type[part.gpu_type] for part in parts if part.gpu_type in by_type}


def parts_of(reading: Reading) -> Parts:
    """Divide each GPU type into parts; a type with the same limits throughout keeps its name."""
    lists = {job.partition for job in reading.jobs if not job.state.finished}
    asked = {name for partition in lists for name in _asked(partition)}
    kinds: dict[GpuType, dict[Limits, list[NodeName]]] = defaultdict(dict)
    for node in reading.nodes:
        kinds[node.gpu_type].setdefault(_limits(node, asked), []).append(node.name)
    of_node: dict[NodeName, Part] = {}
    distinct = []
    for gpu_type, parts in kinds.items():
        for limits, names in parts.items():
            name = GpuType(f"{gpu_type} ({limits})") if len(parts) > 1 else gpu_type
            distinct.append(Part(name, gpu_type, limits))
            of_node |= dict.fromkeys(names, distinct[-1])
    limited = any(part.limits != Limits(None, None) for part in distinct)
    return Parts(of_node, tuple(distinct), limited, reading.now)


def _limits(node: NodeReading, asked: set[str]) -> Limits:
    inside = frozenset(asked.intersection(node.partitions)) if node.partitions else None
    return Limits(inside, node.reserved_from, node.reservation)


def _asked(partition: str) -> list[str]:
    """By a job, as in ``a,b``: Slurm takes the one where it can start."""
    return partition.split(",")

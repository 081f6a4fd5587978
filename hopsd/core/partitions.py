"""Slurm's partitions: a job runs on servers of one of its partitions, and nowhere else.

Policies know GPU types alone. So where partitions part the servers of a GPU type, each part is a
type of its own in the snapshot, and a job has tables for the parts that are open to it. No
placement lies across two parts: Slurm takes all nodes of a job from one partition.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from hopsd.model.ids import GpuType, NodeName
from hopsd.model.reading import JobReading, Reading

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Part:
    """Servers of ``gpu_type`` that are in the same partitions; ``name`` is their type in a plan.

    ``partitions``: those that some job asks for; None: open to every job.
    """

    name: GpuType
    gpu_type: GpuType
    partitions: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Parts:
    """The part of every node; ``all``: each of them once."""

    of_node: Mapping[NodeName, Part]
    all: tuple[Part, ...]

    def open_to(self, job: JobReading, by_type: Mapping[GpuType, T]) -> dict[GpuType, T]:
        """What is known of GPU types, by the parts of them where ``job`` may run."""
        asked = _asked(job)
        return {
            part.name: by_type[part.gpu_type]
            for part in self.all
            if part.gpu_type in by_type
            and (part.partitions is None or not part.partitions.isdisjoint(asked))
        }


def parts_of(reading: Reading) -> Parts:
    """A GPU type that no partition parts is one part and keeps its name."""
    asked = {name for job in reading.jobs if not job.state.finished for name in _asked(job)}
    inside = {
        node.name: frozenset(asked.intersection(node.partitions)) if node.partitions else None
        for node in reading.nodes
    }
    kinds = defaultdict(set)
    for node in reading.nodes:
        kinds[node.gpu_type].add(inside[node.name])
    of_node = {
        node.name: Part(
            _name(node.gpu_type, inside[node.name])
            if len(kinds[node.gpu_type]) > 1
            else node.gpu_type,
            node.gpu_type,
            inside[node.name],
        )
        for node in reading.nodes
    }
    return Parts(of_node, tuple(dict.fromkeys(of_node.values())))


def _asked(job: JobReading) -> list[str]:
    """``a,b``: Slurm takes the one where the job can start."""
    return job.partition.split(",")


def _name(gpu_type: GpuType, partitions: frozenset[str] | None) -> GpuType:
    return GpuType(f"{gpu_type} ({', '.join(sorted(partitions or ())) or 'elsewhere'})")

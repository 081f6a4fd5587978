"""The cluster as a plan sees it."""

from __future__ import annotations

from dataclasses import dataclass

from hopsd.model.ids import GpuType, NodeName, RackName


@dataclass(frozen=True, slots=True)
class Node:
    """A schedulable server. ``gpus`` in all, ``idle`` free now; one GPU type per node.

    ``rack``: None where nobody said it; those nodes count as one rack. ``cores`` and ``memory_mb``
    in all, None: never short; ``idle_cores`` and ``idle_memory_mb`` free now, None: all of them.
    """

    name: NodeName
    gpu_type: GpuType
    gpus: int
    idle: int
    rack: RackName | None = None
    cores: int | None = None
    idle_cores: int | None = None
    memory_mb: float | None = None
    idle_memory_mb: float | None = None

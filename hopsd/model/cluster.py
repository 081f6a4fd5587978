"""The cluster as a plan sees it."""

from __future__ import annotations

from dataclasses import dataclass

from hopsd.model.ids import GpuType, NodeName, RackName


@dataclass(frozen=True, slots=True)
class Node:
    """A schedulable server: ``gpus`` in total, of one type, of which ``idle`` are free now.

    ``rack`` None: unknown; such nodes count as one rack. ``cores`` and ``memory_mb``: in total,
    None: never scarce; ``idle_cores`` and ``idle_memory_mb``: free now, None: all of them.
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

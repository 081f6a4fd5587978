"""The cluster as a plan sees it."""

from __future__ import annotations

from dataclasses import dataclass

from hopsd.model.ids import GpuType, NodeName


@dataclass(frozen=True, slots=True)
class Node:
    """A schedulable server: ``gpus`` in total, of one type, of which ``idle`` are free now.

    ``cores`` and ``memory_mb``: in total, None: never scarce; ``idle_cores`` and
    ``idle_memory_mb``: free now, None: all of them. ``switches``: those above it, top down.
    """

    name: NodeName
    gpu_type: GpuType
    gpus: int
    idle: int
    cores: int | None = None
    idle_cores: int | None = None
    memory_mb: float | None = None
    idle_memory_mb: float | None = None
    switches: tuple[str, ...] = ()

    @property
    def leaf(self) -> str:
        """Its leaf switch, block or rack; nodes without one are together on the leaf ""."""
        return self.switches[-1] if self.switches else ""

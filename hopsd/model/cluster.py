"""The cluster as a plan sees it."""

from __future__ import annotations

from dataclasses import dataclass

from hopsd.model.ids import GpuType, NodeName


@dataclass(frozen=True, slots=True)
class Node:
    """A schedulable server. ``gpus`` in all, ``idle`` free now; one GPU type per node."""

    name: NodeName
    gpu_type: GpuType
    gpus: int
    idle: int

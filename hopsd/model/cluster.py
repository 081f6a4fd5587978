"""The cluster as a plan sees it."""

from __future__ import annotations

from dataclasses import dataclass

from hopsd.model.ids import GpuType, NodeName, RackName


@dataclass(frozen=True, slots=True)
class Node:
    """A schedulable server. ``gpus`` in all, ``idle`` free now; one GPU type per node.

    ``rack``: None where nobody said it; those nodes count as one rack.
    """

    name: NodeName
    gpu_type: GpuType
    gpus: int
    idle: int
    rack: RackName | None = None

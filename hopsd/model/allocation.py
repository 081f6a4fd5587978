"""GPUs of named nodes: the paper's configuration ``{server: gpus}`` (section 3.4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hopsd.model.ids import NodeName


@dataclass(frozen=True, slots=True)
class Allocation:
    """GPUs per node, sorted by node name; empty for a job that holds none.

    Equal and hashable by content, so two plans can be compared.
    """

    parts: tuple[tuple[NodeName, int], ...] = ()

    @classmethod
    def of(cls, gpus_by_node: Mapping[NodeName, int] | Mapping[str, int]) -> Allocation:
        """Build from ``{node: gpus}``; nodes with 0 GPUs are dropped, negative ones refused."""
        if any(gpus < 0 for gpus in gpus_by_node.values()):
            raise ValueError(f"negative GPU count in {dict(gpus_by_node)}")
        return cls(tuple(sorted((NodeName(n), g) for n, g in gpus_by_node.items() if g)))

    @property
    def gpus(self) -> int:
        return sum(gpus for _, gpus in self.parts)

    @property
    def nodes(self) -> tuple[NodeName, ...]:
        return tuple(node for node, _ in self.parts)

    @property
    def spread(self) -> bool:
        """True if the GPUs are on more than one node (the paper's distributed placement)."""
        return len(self.parts) > 1

    @property
    def even(self) -> bool:
        """True if every node provides the same number of GPUs."""
        return len({gpus for _, gpus in self.parts}) <= 1

    def on(self, node: NodeName) -> int:
        return dict(self.parts).get(node, 0)

    def as_dict(self) -> dict[NodeName, int]:
        return dict(self.parts)

    def __iter__(self) -> Iterator[tuple[NodeName, int]]:
        return iter(self.parts)

    def __bool__(self) -> bool:
        return bool(self.parts)

    def __str__(self) -> str:
        return "{" + ", ".join(f"{node}:{gpus}" for node, gpus in self.parts) + "}"

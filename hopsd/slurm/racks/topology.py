"""Switches and blocks above the nodes, as Slurm's topology plugins know them.

Slurm has one topology (``TopologyPlugin``) or, from 25.05 on, several (topology.yaml), one for each
partition: then ``scontrol show config`` always says topology/flat, so ``scontrol show topology`` is
asked. Each topology is read once, so administrators restart hopsd after changing one. pyslurm
(25.11) cannot read them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hopsd.core.submission.nodelist import node_names
from hopsd.errors import SlurmError, SlurmUnavailableError
from hopsd.model.ids import NodeName, host_of
from hopsd.model.reading import NodeReading, SeveralBlocks
from hopsd.slurm.command import Runner
from hopsd.slurm.parse import records
from hopsd.slurm.shape import Release

_SEVERAL_SINCE: Release = (25, 5)
_SEGMENTED_SINCE: Release = (26, 5)
"""From this release on, each named node may be a segment of its own."""

_DEFAULT = ""
_LEVELS = re.compile(r"^TopologyPlugin\s*=\s*topology/(?:tree|block)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Topology:
    """The switches or blocks above nodes.

    ``switches`` has those above each node, top down; the last is its leaf switch or block.
    ``blocks`` says whether the plugin is topology/block, ``outside`` whether Slurm also starts jobs
    on nodes that are not in the topology.
    """

    switches: Mapping[NodeName, tuple[str, ...]] = field(default_factory=dict)
    blocks: bool = False
    outside: bool = True

    def reaches(self, node: NodeName) -> bool:
        """Whether Slurm starts jobs on the node."""
        return self.outside or node in self.switches


class TopologyReader:
    """Reads the topologies of partitions. ``config`` returns ``scontrol show config``."""

    def __init__(
        self, commands: Runner, release: Callable[[], Release], config: Callable[[], str]
    ) -> None:
        self._commands = commands
        self._release = release
        self._config = config
        self._topologies: dict[str, Topology] = {}

    def for_partitions(self, partitions: Iterable[Mapping[str, str]]) -> Topology:
        """Return the topology of the nodes in ``partitions``. If there are several, blocks come
        before switches, since Slurm refuses jobs over several blocks.
        """
        names = dict.fromkeys(fields.get("Topology", _DEFAULT) for fields in partitions)
        return join_topologies([self._topology(name) for name in names])

    def several_blocks(self, topology: Topology) -> SeveralBlocks:
        """Which shapes on named nodes of several blocks Slurm accepts."""
        if not topology.blocks:
            return SeveralBlocks.ANY
        has_segments = self._release() >= _SEGMENTED_SINCE
        return SeveralBlocks.EVEN if has_segments else SeveralBlocks.NONE

    def _topology(self, name: str) -> Topology:
        if name not in self._topologies:
            try:
                self._topologies[name] = self._ask(name)
            except SlurmUnavailableError:
                raise  # no answer: ask again next time
            except SlurmError:
                self._topologies[name] = Topology()
                raise
        return self._topologies[name]

    def _ask(self, name: str) -> Topology:
        if self._release() < _SEVERAL_SINCE and not _LEVELS.search(self._config()):
            return Topology()
        words = [name] if name else []
        return read_topology(records(self._commands.run("scontrol", "show", "topology", *words)))


def join_topologies(topologies: Sequence[Topology]) -> Topology:
    """Join topologies: each node's switches come from the first that has it, blocks first."""
    sorted_topologies = sorted(topologies, key=lambda topology: not topology.blocks)
    switches = {
        node: path
        for topology in reversed(sorted_topologies)
        for node, path in topology.switches.items()
    }
    return Topology(
        switches,
        any(topology.blocks for topology in topologies),
        not topologies or any(topology.outside for topology in topologies),
    )


def nodes_of_topology(topology: Topology, nodes: Iterable[NodeReading]) -> list[NodeReading]:
    """Mark nodes as unusable on which Slurm's topology plugin lets no job start."""
    return [
        node
        if topology.reaches(host_of(node.name))
        else replace(node, usable=False, state_text=f"{node.state_text}, in no Slurm block")
        for node in nodes
    ]


def read_topology(records: Iterable[Mapping[str, str]]) -> Topology:
    """Parse ``scontrol show topology``; empty if Slurm has no topology.

    If a node has several switches of one level above it, which Slurm allows, the first counts.
    """
    switches_by_node: dict[NodeName, dict[int, str]] = defaultdict(dict)
    blocks = False
    for fields in records:
        name, level = fields.get("SwitchName"), fields.get("Level", "")
        block = fields.get("BlockName") or fields.get("AggregatedBlock")
        if block:
            name, level, blocks = block, fields.get("BlockSize", ""), True
        if name and level.isdecimal():
            for node in node_names(fields.get("Nodes", "")):
                switches_by_node[node].setdefault(-int(level), name)
    switches = {
        node: tuple(name for _, name in sorted(by_level.items()))
        for node, by_level in switches_by_node.items()
    }
    return Topology(switches, blocks, outside=not blocks)

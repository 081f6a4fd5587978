"""Switches and blocks above the nodes, as Slurm's topology plugins know them.

Slurm has one topology (``TopologyPlugin``), or from 25.05 on several (topology.yaml), one for each
partition: then ``scontrol show config`` says topology/flat whatever they are, so Slurm is asked.
Asked once each: an administrator restarts hopsd after changing them. pyslurm (25.11) reads none.
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
"""Named nodes may be segments of one node each."""

_DEFAULT = ""
_LEVELS = re.compile(r"^TopologyPlugin\s*=\s*topology/(?:tree|block)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Topology:
    """``switches``: those above each node, top down; the last is its leaf switch or block.
    ``blocks``: whether it is topology/block. ``outside``: whether jobs start on other nodes, too.
    """

    switches: Mapping[NodeName, tuple[str, ...]] = field(default_factory=dict)
    blocks: bool = False
    outside: bool = True

    def reaches(self, node: NodeName) -> bool:
        """Whether Slurm starts jobs on the node."""
        return self.outside or node in self.switches


class TopologyReader:
    """Reads the topologies of partitions. ``config``: ``scontrol show config``."""

    def __init__(
        self, commands: Runner, release: Callable[[], Release], config: Callable[[], str]
    ) -> None:
        self._commands = commands
        self._release = release
        self._config = config
        self._topologies: dict[str, Topology] = {}

    def for_partitions(self, partitions: Iterable[Mapping[str, str]]) -> Topology:
        """That of nodes in ``partitions``. Of several, blocks come before switches, since Slurm
        refuses jobs over several of them.
        """
        names = dict.fromkeys(fields.get("Topology", _DEFAULT) for fields in partitions)
        return join_topologies([self._topology(name) for name in names])

    def several_blocks(self, topology: Topology) -> SeveralBlocks:
        """What named nodes of several blocks Slurm starts a job on."""
        if not topology.blocks:
            return SeveralBlocks.ANY
        has_segments = self._release() >= _SEGMENTED_SINCE
        return SeveralBlocks.EVEN if has_segments else SeveralBlocks.NONE

    def _topology(self, name: str) -> Topology:
        if name not in self._topologies:
            try:
                self._topologies[name] = self._ask(name)
            except SlurmUnavailableError:
                raise  # no answer: asked again
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
    """The switches of each node from the first topology that has it, blocks first."""
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
    """The nodes; those on which Slurm's topology plugin lets no job start are not usable."""
    return [
        node
        if topology.reaches(host_of(node.name))
        else replace(node, usable=False, state_text=f"{node.state_text}, in no block of Slurm's")
        for node in nodes
    ]


def read_topology(records: Iterable[Mapping[str, str]]) -> Topology:
    """What ``scontrol show topology`` tells; nothing where Slurm knows none.

    Of several switches of one level above a node, which Slurm allows, the first counts.
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

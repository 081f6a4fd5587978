"""What ``scontrol show topology`` prints, for one topology and for several at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from hopsd.errors import SlurmUnavailableError
from hopsd.model.ids import GpuType, NodeName
from hopsd.model.reading import NodeReading, SeveralBlocks
from hopsd.slurm.parse import records
from hopsd.slurm.racks.topology import (
    Topology,
    TopologyReader,
    join_topologies,
    nodes_of_topology,
    read_topology,
)

TREE = """\
SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[0-1]
SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n2
SwitchName=core Level=1 LinkSpeed=1 Nodes=n[0-2] Switches=s[0-1]
"""
BLOCKS = """\
BlockName=b0 BlockIndex=0 Nodes=n[0-1] BlockSize=2
BlockName=b1 BlockIndex=1 Nodes=n[2-3] BlockSize=2
BlockName=b2 BlockIndex=2 Nodes=n[4-5] BlockSize=2
AggregatedBlock=b[0-1] BlockIndex=3 Nodes=n[0-3] BlockSize=4
"""
NO_TOPOLOGY = "No topology information available\n"


class CannedTopology:
    """Slurm's commands with the prepared text of each topology; records what was asked."""

    def __init__(self, **topologies: str) -> None:
        self.topologies = topologies
        self.calls: list[str] = []

    def run(self, *words: str, **_: Any) -> str:
        name = words[3] if len(words) > 3 else "default"
        self.calls.append(name)
        return self.topologies[name]


def reader(
    commands: CannedTopology, release: tuple[int, int], plugin: str = "topology/flat"
) -> TopologyReader:
    return TopologyReader(
        commands, lambda: release, lambda: f"TopologyPlugin          = {plugin}\n"
    )


def test_switches_of_a_tree_are_listed_top_down() -> None:
    assert read_topology(records(TREE)).switches == {
        "n0": ("core", "s0"),
        "n1": ("core", "s0"),
        "n2": ("core", "s1"),
    }


def test_a_node_below_two_leaf_switches_belongs_to_the_first() -> None:
    two = TREE.replace("Nodes=n2\n", "Nodes=n[1-2]\n")
    assert two != TREE
    assert read_topology(records(two)).switches == read_topology(records(TREE)).switches


def test_blocks_are_leaves_below_their_aggregate() -> None:
    assert read_topology(records(BLOCKS)).switches == {
        **{f"n{i}": ("b[0-1]", "b0") for i in (0, 1)},
        **{f"n{i}": ("b[0-1]", "b1") for i in (2, 3)},
        **{f"n{i}": ("b2",) for i in (4, 5)},
    }


@pytest.mark.parametrize(
    ("release", "plugin", "expected_calls"),
    [
        ((22, 5), "topology/none", []),
        ((22, 5), "topology/tree", ["default"]),
        ((24, 11), "topology/block", ["default"]),
        ((24, 11), "topology/flat", []),
        ((26, 5), "topology/flat", ["default"]),  # topology.yaml may differ
    ],
)
def test_slurm_is_asked_once_if_it_may_have_a_topology(
    release: tuple[int, int], plugin: str, expected_calls: list[str]
) -> None:
    commands = CannedTopology(default=NO_TOPOLOGY)
    topologies = reader(commands, release, plugin)
    for _ in range(2):
        assert (
            topologies.for_partitions([{"PartitionName": "main"}, {"PartitionName": "x"}])
            == Topology()
        )
    assert commands.calls == expected_calls


def test_a_slurmctld_that_did_not_answer_is_asked_again() -> None:
    """Regression: the cluster had no racks until hopsd was restarted."""

    class Silent(CannedTopology):
        def run(self, *words: str, **_: Any) -> str:
            raise SlurmUnavailableError("no answer within 5 s")

    silent = Silent()
    topologies = reader(silent, (25, 5))
    with pytest.raises(SlurmUnavailableError):
        topologies.for_partitions([{}])
    with pytest.raises(SlurmUnavailableError):
        topologies.for_partitions([{}])


def test_each_partition_has_its_own_topology() -> None:
    commands = CannedTopology(default=NO_TOPOLOGY, fabric=TREE, blocks=BLOCKS)
    topologies = reader(commands, (26, 5))
    main, fabric = {"PartitionName": "main"}, {"PartitionName": "f", "Topology": "fabric"}
    blocks = {"PartitionName": "b", "Topology": "blocks"}
    assert topologies.for_partitions([main]).switches == {}
    assert topologies.for_partitions([main, fabric]).switches["n2"] == ("core", "s1")
    topology = topologies.for_partitions([fabric, blocks])
    assert topology.switches["n2"] == ("b[0-1]", "b1")
    assert topology.blocks
    assert commands.calls == ["default", "fabric", "blocks"]


@pytest.mark.parametrize(
    ("release", "text", "expected_support"),
    [
        ((26, 5), BLOCKS, SeveralBlocks.EVEN),
        ((25, 11), BLOCKS, SeveralBlocks.NONE),
        ((24, 11), BLOCKS, SeveralBlocks.NONE),
        ((26, 5), TREE, SeveralBlocks.ANY),
        ((26, 5), NO_TOPOLOGY, SeveralBlocks.ANY),
    ],
)
def test_placements_over_several_blocks_depend_on_the_release(
    release: tuple[int, int], text: str, expected_support: SeveralBlocks
) -> None:
    topologies = reader(CannedTopology(default=text), release, "topology/block")
    assert topologies.several_blocks(topologies.for_partitions([{}])) is expected_support


@pytest.mark.parametrize(
    ("topologies", "usable"),
    [
        ([BLOCKS], {"n0": True, "n9": False}),
        ([BLOCKS, NO_TOPOLOGY], {"n0": True, "n9": True}),
        ([TREE], {"n0": True, "n9": True}),
        ([], {"n0": True, "n9": True}),
    ],
)
def test_nodes_outside_blocks_are_not_usable(
    topologies: list[str], usable: Mapping[str, bool]
) -> None:
    nodes = [NodeReading(NodeName(name), GpuType("a100"), 4, 8) for name in usable]
    topology_nodes = nodes_of_topology(
        join_topologies([read_topology(records(text)) for text in topologies]), nodes
    )
    assert {node.name: node.usable for node in topology_nodes} == usable

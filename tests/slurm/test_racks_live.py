"""Racks from Slurm's own topology plugins: hops reads them, and names exact nodes within them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from fixtures_cluster import clean, running_cluster, submit, wait_until
from memory_store import MemoryStore
from slurm_contract import SETTINGS, assert_runs_as_planned, make_adapter, start

from examples.demo.cluster import NodeSpec, PrivateCluster, slurm_release
from hopsd.core.queue.profile_runs import ProfilingSettings
from hopsd.core.submission.nodelist import node_names
from hopsd.model.reading import SeveralBlocks
from hopsd.policies.registry import get
from hopsd.round.run import run_round
from hopsd.round.settings import RoundSettings
from hopsd.round.window import RoundWindow
from hopsd.slurm.adapter import Adapter
from hopsd.slurm.apply import SlurmPort

pytestmark = pytest.mark.live

BLOCKS_SINCE, YAML_SINCE, SEGMENTED_SINCE = (23, 11), (25, 5), (26, 5)

TREE = """\
SwitchName=s0 Nodes=n[0-1]
SwitchName=s1 Nodes=n[2-3]
SwitchName=s2 Nodes=n[4-5]
SwitchName=core Switches=s[0-2]
"""
BLOCKS = """\
BlockName=b0 Nodes=n[0-1]
BlockName=b1 Nodes=n[2-3]
BlockName=b2 Nodes=n[4-5]
BlockSizes=2,4
"""
SEVERAL = """\
- topology: blocks
  cluster_default: true
  block:
    block_sizes: [2, 4]
    blocks:
      - {block: b0, nodes: "n[0-1]"}
      - {block: b1, nodes: "n[2-3]"}
      - {block: b2, nodes: "n[4-5]"}
- topology: fabric
  cluster_default: false
  tree:
    switches:
      - {switch: s0, nodes: "n[0-2]"}
      - {switch: s1, nodes: "n[3-5]"}
      - {switch: core, children: "s[0-1]"}
"""

KINDS = {
    "tree": (["TopologyPlugin=topology/tree"], {"topology.conf": TREE}, (0, 0)),
    "block": (["TopologyPlugin=topology/block"], {"topology.conf": BLOCKS}, BLOCKS_SINCE),
    "several": ([], {"topology.yaml": SEVERAL}, YAML_SINCE),
}


@pytest.fixture(scope="module", params=KINDS)
def racks(request: pytest.FixtureRequest) -> Iterator[tuple[str, PrivateCluster]]:
    conf, files, first_release = KINDS[request.param]
    if slurm_release() < first_release:
        pytest.skip(f"this Slurm has no topology of this kind: {request.param}")
    with running_cluster(
        nodes=[NodeSpec("a100", 4, 8)] * 6, extra_conf=conf, extra_files=files
    ) as cluster:
        yield request.param, cluster


@dataclass(frozen=True)
class Site:
    """A cluster of six nodes with four GPUs, in three leaves of two, read through one adapter."""

    cluster: PrivateCluster
    adapter: Adapter
    blocks: bool

    @property
    def port(self) -> SlurmPort:
        return SlurmPort(self.adapter, SETTINGS)

    @property
    def allows_uneven(self) -> bool:
        """Whether Slurm allocates uneven counts on nodes of several leaves."""
        return not self.blocks

    @property
    def several(self) -> bool:
        """Whether Slurm allocates named nodes of several leaves."""
        return not self.blocks or slurm_release() >= SEGMENTED_SINCE


@pytest.fixture(params=["scontrol", "pyslurm"])
def site(request: pytest.FixtureRequest, racks: tuple[str, PrivateCluster]) -> Iterator[Site]:
    kind, cluster = racks
    yield Site(cluster, make_adapter(request.param, cluster), blocks=kind != "tree")
    clean(cluster)


def test_racks_of_nodes_are_read(site: Site) -> None:
    reading = site.adapter.read()
    leaves = {node.name: node.switches[-1] for node in reading.nodes}
    word = "b" if site.blocks else "s"
    assert leaves == {f"n{i}": f"{word}{i // 2}" for i in range(6)}
    expected_support = SeveralBlocks.EVEN if site.several else SeveralBlocks.NONE
    assert reading.several_blocks is (expected_support if site.blocks else SeveralBlocks.ANY)


@pytest.mark.parametrize(
    "place",
    [
        {"n0": 2, "n1": 2},
        {"n1": 2, "n4": 2},
        {"n0": 4, "n2": 4, "n4": 4},
        {"n0": 1, "n1": 1, "n2": 1, "n5": 1},
        {"n0": 4, "n3": 2},
    ],
    ids=lambda place: "-".join(f"{node}x{gpus}" for node, gpus in place.items()),
)
def test_slurm_starts_jobs_on_named_nodes_of_several_racks(
    site: Site, place: dict[str, int]
) -> None:
    leaves = {int(node[1:]) // 2 for node in place}
    if len(leaves) > 1 and not site.several:
        pytest.skip("this Slurm takes no named nodes of several blocks")
    if len(set(place.values())) > 1 and not site.allows_uneven:
        pytest.skip("topology/block takes equal counts alone")
    job = submit(site.cluster, "--comment=hops:reqs=1-24")
    assert_runs_as_planned(site.port, site.port.apply([start(job, **place)]))


SETTINGS_OF_ROUND = RoundSettings(seconds=3600.0, profiling=ProfilingSettings(enabled=False))
ADDRESS = "echo NODES=$SLURM_JOB_NODELIST; srun -N1 -n1 printenv SLURM_TOPOLOGY_ADDR"


@dataclass(frozen=True)
class Wish:
    """Options and a comment; how many leaves the job's eight or more GPUs may span."""

    options: str
    comment: str
    nodes: int
    leaves: int


def test_rack_bound_jobs_run_as_requested_and_print_their_address(site: Site) -> None:
    """Together the jobs need all six nodes: none is refused, whatever the topology."""
    wishes = [
        Wish("--nodes=2 --gpus-per-node=4", "hops:reqs=8;segment=2;preempt=no", 2, 1),
        Wish("--nodes=2 --gpus-per-node=4 --switches=1", "hops:reqs=8;preempt=no", 2, 1),
        Wish("--nodes=2 --gpus-per-node=4", "hops:reqs=8;segment=2;preempt=no", 2, 1),
    ]
    outputs = run_all(site, wishes)
    for wish, output in zip(wishes, outputs, strict=True):
        nodes, address = nodes_and_address(output)
        assert len(nodes) == wish.nodes
        assert len({int(node[1:]) // 2 for node in nodes}) <= wish.leaves
        assert address.rpartition(".")[2] in nodes
        assert "." in address


def test_segments_may_span_all_racks(site: Site) -> None:
    if not site.several:
        pytest.skip("this Slurm takes no named nodes of several blocks")
    wish = Wish("--nodes=2 --gpus-per-node=4", "hops:reqs=24;segment=2;preempt=no", 6, 3)
    nodes, address = nodes_and_address(run_all(site, [wish])[0])
    assert len(nodes) == wish.nodes
    assert address


def run_all(site: Site, wishes: list[Wish]) -> list[str]:
    """Run all of them beside each other in rounds of hops, and return what each prints."""
    paths = [Path(site.cluster.directory) / f"out-{uuid4().hex}" for _ in wishes]
    for wish, path in zip(wishes, paths, strict=True):
        submit(
            site.cluster,
            f"--output={path}",
            *wish.options.split(),
            comment=wish.comment,
            script=ADDRESS,
        )
    port, store = site.port, MemoryStore()
    window: RoundWindow | None = None

    def are_finished() -> bool:
        nonlocal window
        window = run_round(port, store, get("hops"), SETTINGS_OF_ROUND, window).window
        return site.cluster.run("squeue", "--noheader") == ""

    wait_until(are_finished)
    return [path.read_text() for path in paths]


def nodes_and_address(output: str) -> tuple[list[str], str]:
    node_list, address = output.split()[:2]
    return node_names(node_list.partition("=")[2]), address

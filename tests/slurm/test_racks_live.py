"""Racks as Slurm's own topology plugins know them: read, and kept to in exact node lists."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fixtures_cluster import clean, running_cluster, submit
from slurm_contract import SETTINGS, assert_runs_as_planned, make_adapter, start

from examples.demo.cluster import NodeSpec, PrivateCluster, slurm_release
from hopsd.slurm.adapter import Adapter
from hopsd.slurm.apply import SlurmPort

pytestmark = pytest.mark.live

BLOCKS_SINCE, YAML_SINCE = (23, 11), (25, 5)

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
def site(request: pytest.FixtureRequest) -> Iterator[tuple[str, PrivateCluster]]:
    conf, files, since = KINDS[request.param]
    if slurm_release() < since:
        pytest.skip(f"this Slurm has no topology of this kind: {request.param}")
    with running_cluster(
        nodes=[NodeSpec("a100", 4, 8)] * 6, extra_conf=conf, extra_files=files
    ) as cluster:
        yield request.param, cluster


@pytest.fixture(params=["scontrol", "pyslurm"])
def port(
    request: pytest.FixtureRequest, site: tuple[str, PrivateCluster]
) -> Iterator[tuple[str, PrivateCluster, SlurmPort, Adapter]]:
    kind, cluster = site
    adapter = make_adapter(request.param, cluster)
    yield kind, cluster, SlurmPort(adapter, SETTINGS), adapter
    clean(cluster)


def test_topology(port):
    kind, cluster, _, adapter = port
    print(cluster.run("scontrol", "show", "topology"))
    print({n.name: n.switches for n in adapter.read().nodes})


PLACES = [
    {"n0": 2, "n1": 2},
    {"n0": 2, "n2": 2},
    {"n1": 2, "n4": 2},
    {"n0": 4, "n2": 4, "n4": 4},
    {"n0": 1, "n1": 1, "n2": 1, "n5": 1},
    {"n0": 4, "n3": 2},
    {"n0": 4, "n1": 4, "n3": 3},
    {"n0": 4, "n1": 4, "n2": 4, "n3": 4, "n4": 4, "n5": 4},
]


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_placement(port, place):
    kind, cluster, port_, _ = port
    job = submit(cluster, "--comment=hops:reqs=1-24")
    outcomes = port_.apply([start(job, **place)])
    assert_runs_as_planned(port_, outcomes)

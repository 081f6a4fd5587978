"""A request that no node of slurm.conf can meet is reported at submission, by what is missing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from submit_live import PLUGIN, sbatch

from examples.demo.cluster import PrivateCluster

FOLDER = Path(__file__).parent
LUA = next(filter(shutil.which, ("lua5.1", "lua5.4", "lua5.3", "lua5.2", "luajit")), None)

CONF = """\
NodeName=DEFAULT RealMemory=64000 # of all below
NodeName=n[0-1],x CPUs=32 \\
    Gres=gpu:A100:4(S:0-1),nvme:1
include more.conf
"""
MEMORY = "min_mem_per_node=60000"
MORE_NODES = "nodename=v[01-10] Gres=gpu:v100:2 RealMemory=32000\n"


def submit(
    folder: Path,
    reqs: str,
    fields: str = "",
    conf: str = CONF,
    node_lines: str | None = MORE_NODES,
    nodes: str = "",
    calls: bool = False,
) -> tuple[str, str]:
    """Return what happened to the job and its message; ``calls``: a site's script calls ours."""
    plugin = folder / "job_submit.lua"
    if calls:
        plugin.write_text(f'dofile("{PLUGIN}/job_submit.lua")\nreturn slurm.SUCCESS\n')
    else:
        shutil.copy(PLUGIN / "job_submit.lua", plugin)
    (folder / "slurm.conf").write_text(conf)
    if node_lines is not None:
        (folder / "more.conf").write_text(node_lines)
    if LUA is None:
        pytest.skip("no Lua interpreter here")
    for place in ("node", "job"):
        fields = fields.replace(f"{place}=gpu", f"tres_per_{place}=gres:gpu")
    texts = (f"hops:reqs={reqs}", "", nodes, "", fields.replace(" ", "\n"))
    result = subprocess.run(
        [LUA, str(FOLDER / "submit_driver.lua"), str(plugin)],
        input=" ".join(text.encode().hex() for text in texts) + "\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    became, hex_message, _ = result.stdout.rstrip("\n").split(" ")
    return became, bytes.fromhex(hex_message).decode()


def test_the_cluster_is_read_if_a_sites_script_calls_ours(tmp_path: Path) -> None:
    """slurm.conf is beside the site's script, which has already ended when a job is submitted."""
    assert "the cluster has 20 of one type" in submit(tmp_path, "64", calls=True)[1]


@pytest.mark.parametrize(
    ("reqs", "fields", "words"),
    [
        ("64", "", "64 GPUs: the cluster has 20 of one type"),
        ("20", "", ""),
        ("2,64", "", "never on this cluster as it is: 64 GPUs"),
        ("1-64", "", ""),
        ("21-64", "", "21 GPUs: the cluster has 20 of one type"),
        ("13", "job=gpu:a100:13", "of the type a100: the most on one node are 4"),
        ("1", "node=gpu:h100:1", "no node has GPUs of the type h100: the types are a100, v100"),
        ("2", f"node=gpu:2 {MEMORY}", ""),
        ("2", f"node=gpu:v100:2 {MEMORY}", "no node with as many has that much"),
        ("16", MEMORY, "16 GPUs with --mem=60000M: too few nodes have that much memory"),
        ("16", "node=gpu:4 min_nodes=4 max_nodes=4", "nodes with 4 each have 12 in all"),
        ("12", "node=gpu:4 min_nodes=3 max_nodes=3", ""),
        ("64;cpu=yes", "", ""),
    ],
)  # fmt: skip
def test_requests_that_the_cluster_cannot_meet_are_reported(
    tmp_path: Path, reqs: str, fields: str, words: str
) -> None:
    became, message = submit(tmp_path, reqs, fields)
    possible = not words or words.startswith("never on")
    assert became == "held"
    assert words in message
    assert ("Requested node configuration is not available: " in message) != possible
    assert ("cluster" in message.partition("accepted")[0]) == ("cluster" in words)


@pytest.mark.parametrize(
    ("conf", "node_lines"),
    [(CONF + "MaxNodeCount=100\n", MORE_NODES), (CONF, None)],
    ids=["nodes may join", "a file of slurm.conf is not there"],
)
def test_requests_that_joining_nodes_may_meet_are_held(
    tmp_path: Path, conf: str, node_lines: str | None
) -> None:
    became, message = submit(tmp_path, "64", conf=conf, node_lines=node_lines)
    assert became == "held"
    assert "64 GPUs: the cluster has" in message
    assert "hops cannot start the job, until nodes join that have them" in message


@pytest.mark.parametrize(
    ("fields", "fewer"),
    [
        ("node=gpu:a100:2 cpus_per_task=16", False),
        ("node=gpu:a100:2 cpus_per_task=18", True),
        ("node=gpu:2 cpus_per_task=18", False),  # slurm.conf does not state the CPUs of v01
        ("node=gpu:a100:2 cpus_per_task=18 shared=0", False),  # --exclusive
    ],
)
def test_cores_beyond_a_gpus_share_are_mentioned(tmp_path: Path, fields: str, fewer: bool) -> None:
    became, message = submit(tmp_path, "2", f"{fields} num_tasks=1")
    assert became == "held"
    assert ("at most 8 CPU cores with each GPU instead of 9" in message) == fewer
    assert ("CPU cores" in message) == fewer


@pytest.mark.parametrize(
    ("nodes", "unknown"),
    [
        ("n[0-1],x", ""),
        ("gpus", ""),  # a NodeSet
        ("n[0-3]", "n2,n3"),
        ("v[8-9],x", "v8,v9"),
        ("n01", "n01"),
        ("N0", ""),
    ],
)
@pytest.mark.parametrize("node_lines", [MORE_NODES, None], ids=["whole", "a file is not there"])
def test_a_named_node_unknown_to_slurm_is_reported(
    tmp_path: Path, nodes: str, unknown: str, node_lines: str | None
) -> None:
    """Slurm refuses a plain job that names it."""
    conf = CONF + "NodeSet=gpus Feature=gpu\n"
    became, message = submit(tmp_path, "1", conf=conf, node_lines=node_lines, nodes=nodes)
    words = f"Invalid node name specified: slurm.conf has no '{unknown}' (--nodelist)"
    assert (words in message) == bool(unknown)
    assert became == ("refused" if unknown and node_lines else "held")


@pytest.mark.parametrize("nodes", ["n[1-999999999]x[5-1],n0", "n[5-1]", f"n[{'0' * 200}1-3]"])
def test_an_empty_or_endless_range_is_refused(tmp_path: Path, nodes: str) -> None:
    """With an empty range, a long one beside it was no node; slurmctld was busy with its names."""
    became, message = submit(tmp_path, "1", nodes=nodes)
    assert became == "refused"
    assert "is not a list of nodes" in message


def test_without_slurm_conf_nothing_is_checked(tmp_path: Path) -> None:
    became, message = submit(tmp_path, "64", conf="# no node\n")
    assert became == "held"
    assert "cluster" not in message


@pytest.mark.live
def test_sbatch_uses_slurms_own_words(cluster: PrivateCluster) -> None:
    """The words are those that Slurm has for plain jobs."""
    for options in (
        ("--comment=hops:reqs=64",),
        ("--comment=hops:reqs=4", "--gres=gpu:a100:4"),
        ("--comment=hops:reqs=4", "--gres=gpu:4", "--mem=100G"),
    ):
        is_accepted, messages = sbatch(cluster, *options)
        assert is_accepted
        assert "hops: Requested node configuration is not available: " in messages
    assert "not available" not in sbatch(cluster, "--comment=hops:reqs=32")[1]
    for comment in ("mine", "hops:reqs=1"):
        is_accepted, messages = sbatch(cluster, f"--comment={comment}", "--nodelist=n0,n99")
        assert not is_accepted
        assert "Invalid node name specified" in messages

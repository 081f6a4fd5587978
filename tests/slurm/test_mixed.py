"""Nodes with GPUs of several types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopsd.core.submission.placement_rules import NodesNotes, allowed_nodes
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName, UserName, host_of
from hopsd.model.reading import Hold, JobReading, NodeReading, Reading, SiteMemory, SlurmState
from hopsd.model.script_options import NO_OPTIONS, ScriptOptions
from hopsd.slurm.mixed import parts, places, with_idle_shares
from hopsd.slurm.parse import job_allocation, node_readings, records
from hopsd.slurm.shape import reset_arguments, update_arguments
from hopsd.slurm.steps.placement_request import Requests
from hopsd.slurm.watch import ApplySettings

A, S, V = GpuType("a100"), GpuType("1g.10gb"), GpuType("v100")
NODE = NodeReading(
    NodeName("n0"), A, 11, 64, idle_cores=60, memory_mb=512_000, idle_memory_mb=400_000
)
MIXED_PARTS = parts(NODE, {A: 4, S: 7})
PLAIN = NodeReading(NodeName("n1"), V, 4, 32)
JOB = JobReading(
    JobId("1"), UserName("ann"), 1, "x", "hops:reqs=2", "p", SlurmState.PENDING, 1.0, Hold.HOPS
)


@given(
    st.dictionaries(st.sampled_from([A, S, V]), st.integers(1, 9), min_size=2),
    st.integers(0, 64),
    st.integers(0, 512_000),
    st.data(),
)
def test_shares_never_exceed_the_total(
    counts: Mapping[GpuType, int], cores: int, memory: int, data: st.DataObject
) -> None:
    node_parts = parts(replace(NODE, idle_cores=cores, idle_memory_mb=memory), counts)
    free = {node.name: data.draw(st.integers(-1, node.gpus)) for node in node_parts}
    parts_with_shares = with_idle_shares(node_parts, free)
    assert sum(node.cores for node in parts_with_shares) <= 64
    assert sum(node.memory_mb or 0 for node in parts_with_shares) <= 512_000
    assert sum(node.idle_cores or 0 for node in parts_with_shares) <= cores
    assert sum(node.idle_memory_mb or 0 for node in parts_with_shares) <= memory
    assert all((node.idle_cores or 0) <= node.cores for node in parts_with_shares)


def test_resources_unused_by_one_type_are_free_for_another() -> None:
    free = {NodeName("n0/a100"): 0, NodeName("n0/1g.10gb"): 7}
    idle = {n.name: n.idle_cores for n in with_idle_shares([*MIXED_PARTS, PLAIN], free)}
    assert idle == {"n0/1g.10gb": 40, "n0/a100": 0, "n1": None}


def test_slurm_gives_the_type_of_each_gpu() -> None:
    text = "NodeName=n0 CPUTot=64 Gres=gpu:a100:4(S:0),gpu:1g.10gb:7 State=IDLE Partitions=p\n"
    text += "NodeName=n1 CPUTot=64 Gres=gpu:v100:4 State=IDLE Partitions=p"
    nodes, names = node_readings(records(text), [])
    order = places(names, nodes)
    job = {
        "nodes": "n[0-1]",
        "gres_detail": ["gpu:a100:0(IDX:),gpu:1g.10gb:2(IDX:4,6)", "gpu:v100:3(IDX:0-2)"],
    }
    assert job_allocation(job, order) == {"n0/1g.10gb": (2, (4, 6)), "n1": (3, (0, 1, 2))}


def test_nodes_with_typed_and_untyped_gpus_are_not_used() -> None:
    text = "NodeName=n0 CPUTot=64 Gres=gpu:a100:4,gpu:2 State=IDLE Partitions=p"
    ((node,), _) = node_readings(records(text), [])
    assert (node.usable, node.name) == (False, "n0")
    assert "with and without a type" in node.state_text


@pytest.mark.parametrize(
    ("options", "by_type", "names"),
    [
        (NO_OPTIONS, False, ["n0/1g.10gb", "n0/a100", "n1"]),
        (NO_OPTIONS, True, ["n1"]),
        (ScriptOptions(gpu_type=S), True, ["n0/1g.10gb"]),
        (ScriptOptions(exclusive=True), False, ["n1"]),
        (ScriptOptions(nodes=frozenset({NodeName("n0")})), False, ["n0/1g.10gb", "n0/a100"]),
    ],
)
def test_mixed_nodes_are_for_jobs_that_name_a_type(
    options: ScriptOptions, by_type: bool, names: list[str]
) -> None:
    nodes = [*(replace(node, by_type=by_type) for node in MIXED_PARTS), PLAIN]
    assert [n.name for n in allowed_nodes(replace(JOB, options=options), nodes)] == names
    kept_out = replace(JOB, excluded_nodes=frozenset({NodeName("n0")}))
    assert [n.name for n in allowed_nodes(kept_out, nodes)] == ["n1"]


@pytest.mark.parametrize(
    ("options", "by_type", "prefix"),
    [
        (NO_OPTIONS, True, "not on n0/1g.10gb, n0/a100: before Slurm 23.11"),
        (NO_OPTIONS, False, ""),
        (ScriptOptions(gpu_type=S), True, ""),
        (ScriptOptions(nodes=frozenset({NodeName("n1")})), True, ""),
    ],
)
def test_jobs_without_a_type_are_told_about_nodes_that_require_one(
    options: ScriptOptions, by_type: bool, prefix: str
) -> None:
    nodes = [*(replace(node, by_type=by_type) for node in MIXED_PARTS), PLAIN]
    note = NodesNotes(nodes).for_job(replace(JOB, options=options))
    assert note.startswith(prefix)
    assert bool(note) == bool(prefix)


def test_a_named_node_unknown_to_slurm_is_reported() -> None:
    notes = NodesNotes([PLAIN])
    options = ScriptOptions(nodes=frozenset({NodeName("n1"), NodeName("n7"), NodeName("gone")}))
    assert notes.for_job(replace(JOB, options=options)) == "--nodelist: Slurm has no node gone, n7"
    assert notes.for_job(replace(JOB, options=ScriptOptions(nodes=frozenset({PLAIN.name})))) == ""
    assert notes.for_job(JOB) == ""


def test_the_type_is_requested_after_the_previous_one_is_cleared() -> None:
    reading = Reading(1.0, (*MIXED_PARTS, PLAIN), (JOB,), "24.11", SiteMemory())
    requests = Requests(reading, ApplySettings())

    def words(job: JobReading, **gpus: int) -> tuple[bool, list[str]]:
        placement = requests.placement(job, Allocation.of(gpus))
        return placement.reset, update_arguments(placement, (24, 11))

    reset, request = words(JOB, **{"n0/1g.10gb": 2})
    assert reset
    assert {"reqnodelist=n0", "tresPerNode=gres:gpu:1g.10gb:2"} <= set(request)
    assert "tresPerNode=" in reset_arguments((24, 11))
    reset, request = words(JOB, n1=2)
    assert reset
    assert "tresPerNode=gres:gpu:2" in request
    assert not words(replace(JOB, options=ScriptOptions(gpu_type=V)), n1=2)[0]
    assert {host_of(node.name) for node in reading.nodes} == {"n0", "n1"}

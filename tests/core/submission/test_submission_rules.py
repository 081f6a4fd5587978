"""How a script's options limit the nodes: rules that a plan keeps."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopsd.core.submission.features import alternatives, holds
from hopsd.core.submission.options_text import read_script_options
from hopsd.core.submission.partitions import Access, shortened_minutes
from hopsd.core.submission.placement_rules import (
    BlockRule,
    RulesOnNodes,
    gres_count,
    on_racks,
    racks_note,
    rules_of,
    segments_note,
)
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.reading import (
    JobReading,
    NodeReading,
    Reading,
    SeveralBlocks,
    SiteMemory,
    SlurmState,
)
from hopsd.model.rules import Rules, ShapeRule
from hopsd.model.script_options import NO_OPTIONS, ScriptOptions

BIG = NodeReading(
    NodeName("n0"),
    GpuType("a100"),
    gpus=8,
    cores=64,
    memory_mb=512_000,
    features=frozenset({"a100", "ib"}),
    gres={"VRAM": 40 << 30},
    disk_mb=900_000,
)
SMALL = NodeReading(
    NodeName("n1"),
    GpuType("v100"),
    gpus=4,
    cores=32,
    memory_mb=128_000,
    features=frozenset({"v100", "eth"}),
)
NODES = [BIG, replace(BIG, name=NodeName("n2")), SMALL]
COUNTED_MEMORY = SiteMemory(counted=True)


def job(words: str = "", **fields: object) -> JobReading:
    reading = JobReading(
        JobId("1"), UserName("u"), 1, "x", "hops:reqs=1", "p", SlurmState.PENDING, 0.0
    )
    return replace(
        reading, options=read_script_options(f"site words hops:asks|{words} more"), **fields
    )  # type: ignore[arg-type]


def rules(words: str = "", site: SiteMemory = COUNTED_MEMORY, **fields: object) -> Rules:
    return rules_of(job(words, **fields), NODES, site, 2)


def test_equal_sets_of_nodes_are_one_object_across_ticks() -> None:
    """Caches keyed by rules compare them: 15,000 sets of 5,000 names took four seconds."""
    first, second = (rules("type:a100") for _ in range(2))
    assert first.nodes == {"n0", "n2"}
    assert first.nodes is second.nodes
    partly = (
        RulesOnNodes(NODES, 2).for_job(job(), COUNTED_MEMORY, access=frozenset({NODES[2].name}))
        for _ in range(2)
    )
    third, fourth = partly
    assert third.nodes == {"n1"}
    assert third.nodes is fourth.nodes


def test_the_admin_comment_of_the_submit_plugin_is_parsed() -> None:
    word = (
        "shape:even|per_node:4|counted:yes|tasks:1/2|cores:24/4|memory:7000|exclusive:yes"
        "|signal:steps:USR2|type:a100|gres:VRAM:12G,nvme:1|disk:500|nodes:n[0-1],m3"
    )
    assert read_script_options(f"hops:asks|{word}") == ScriptOptions(
        shape=ShapeRule.EVEN,
        per_node=4,
        tasks_per_gpu=Fraction(1, 2),
        cores_per_gpu=Fraction(6),
        memory_mb_per_gpu=7000,
        exclusive=True,
        gpu_type=GpuType("a100"),
        gres="VRAM:12G,nvme:1",
        disk_mb=500,
        nodes=frozenset(map(NodeName, ("n0", "n1", "m3"))),
        signal="USR2",
        signal_steps=True,
    )


@given(st.text(alphabet="hops:ak|e/1[2]-x ", max_size=60))
def test_any_admin_comment_is_parsed(text: str) -> None:
    read_script_options(text)
    read_script_options(f"hops:asks|shape:{text}|per_node:{text}|tasks:{text}|nodes:{text}")
    assert read_script_options("words of an administrator") == NO_OPTIONS


@pytest.mark.parametrize(
    ("constraint", "node_names"),
    [
        ("a100", {"n0", "n2"}),
        ("a100|v100", None),
        ("a100&ib", {"n0", "n2"}),
        ("a100,ib", {"n0", "n2"}),
        ("v100,ib", set()),
        ("(a100|v100)&eth", {"n1"}),
        ("[a100|v100]", {"n0", "n2"}),
        ("nothing", set()),
        ("a100&", None),
    ],
)
def test_features_select_the_nodes(constraint: str, node_names: set[str] | None) -> None:
    assert rules(features=constraint).nodes == node_names


@given(st.text(alphabet="ab&,|()[] ", max_size=12))
def test_every_constraint_is_parsed(text: str) -> None:
    assert all(holds(alternative, {"a"}) in (True, False) for alternative in alternatives(text))


def test_types_nodes_and_other_gres_select_the_nodes() -> None:
    assert rules().nodes is None
    assert rules("type:v100").nodes == {"n1"}
    assert rules("nodes:n[1-2]").nodes == {"n1", "n2"}
    assert rules(excluded_nodes=frozenset({"n0"})).nodes == {"n1", "n2"}
    assert rules("gres:VRAM:20G").nodes == {"n0", "n2"}
    assert rules("gres:VRAM:50G").nodes == set()
    assert rules("disk:900000").nodes == {"n0", "n2"}
    assert rules("shape:any", memory_mb_per_node=512_000).nodes == {"n0", "n2"}  # all of its memory
    assert rules("shape:any", memory_mb_per_node=512_001).nodes == set()
    assert gres_count("12G") == 12 << 30
    assert gres_count("7") == 7


def test_memory_per_core_counts_the_requested_cores() -> None:
    """Slurm's figure is that of the last placement, with fewer cores and more memory for each."""
    capped_rules = rules("cores:16/1|per_core:100", memory_mb_per_cpu=Fraction(200))
    assert (capped_rules.cores_per_gpu, capped_rules.memory_mb_per_gpu) == (8, 1600)
    assert rules("cores:4/1|per_core:100").memory_mb_per_gpu == 400
    assert rules(memory_mb_per_cpu=Fraction(100)).memory_mb_per_gpu == 200  # two cores by default


def test_cores_are_as_requested_and_at_most_the_gpus_share_of_the_node() -> None:
    assert rules().cores_per_gpu == 2
    assert rules("cores:6/1").cores_per_gpu == 6
    assert rules("cores:40/1").cores_per_gpu == 8
    assert rules("tasks:12/1").cores_per_gpu == 12  # Slurm gives each task at least one core
    assert rules("tasks:12/1|cores:24/1").cores_per_gpu == 12
    assert rules("tasks:1/1").cores_per_gpu == 2
    three = rules("cores:5/3")
    assert [three.cores(gpus) for gpus in (1, 2, 3, 6)] == [2, 4, 5, 10]


@pytest.mark.parametrize(
    ("words", "fields", "site", "per_gpu", "per_node"),
    [
        ("memory:7000", {}, COUNTED_MEMORY, 7000, 0),
        ("", {"memory_mb_per_node": 5000}, COUNTED_MEMORY, 0, 5000),
        ("cores:4/1", {"memory_mb_per_cpu": 100}, COUNTED_MEMORY, 400, 0),
        ("memory:node", {}, COUNTED_MEMORY, 32000, 0),
        ("memory:node|type:a100", {}, COUNTED_MEMORY, 64000, 0),
        ("memory:node|exclusive:yes", {}, COUNTED_MEMORY, 0, 0),
        ("memory:default", {}, COUNTED_MEMORY, 32000, 0),
        ("memory:default", {"memory_mb_per_cpu": 9}, SiteMemory(True, mb_per_gpu=11), 11, 0),
        ("memory:default", {}, SiteMemory(True, mb_per_cpu=10), 20, 0),
        ("memory:default", {}, SiteMemory(True, mb_per_node=10), 0, 10),
        ("memory:7000", {}, SiteMemory(), 0, 0),
    ],
)
def test_memory_is_computed_as_slurm_does(
    words: str, fields: dict[str, object], site: SiteMemory, per_gpu: float, per_node: float
) -> None:
    memory_rules = rules(words, site, **fields)
    assert (memory_rules.memory_mb_per_gpu, memory_rules.memory_mb_per_node) == (per_gpu, per_node)


def test_a_reservation_is_for_jobs_that_name_it() -> None:
    reserved_node = replace(SMALL, reservation="day,night")
    holders = [job(reservation=name) for name in ("", "day", "week")]
    access = Access(Reading(0.0, (BIG, reserved_node), tuple(holders)), {})
    assert [access.nodes(holder) for holder in holders] == [{BIG.name}, {SMALL.name}, set()]


@pytest.mark.parametrize(
    ("fields", "idle", "open_nodes"),
    [
        ({}, 6, {"n2"}),
        ({}, 7, {"n0"}),
        ({"options": replace(NO_OPTIONS, nodes=frozenset({NodeName("n2")}))}, 7, {"n2"}),
        ({"magnetic": ()}, 6, {"n0"}),
    ],
)
def test_a_magnetic_reservation_is_for_jobs_that_it_admits(
    fields: dict[str, object], idle: int, open_nodes: set[str]
) -> None:
    """All nodes of a job lie in the reservation, or none does."""
    nodes = BIG, replace(BIG, name=NodeName("n2"), reservation="course")
    admitted_job = replace(job(magnetic=("course",)), **fields)  # type: ignore[arg-type]
    free = {BIG.name: idle, NodeName("n2"): 7}
    assert Access(Reading(0.0, nodes, (admitted_job,)), free).nodes(admitted_job, 4) == open_nodes


@pytest.mark.parametrize(
    ("words", "idle_elsewhere", "open_nodes"),
    [
        ("", 0, {SMALL.name}),
        ("time_min:30", 0, {BIG.name, SMALL.name}),
        ("time_min:30", 1, {SMALL.name}),  # where its whole time fits, it starts at once as well
        ("time_min:58", 0, {BIG.name, SMALL.name}),
        ("time_min:60", 0, {SMALL.name}),  # it would start some seconds late
    ],
)
def test_time_min_lets_a_job_end_before_a_reservation(
    words: str, idle_elsewhere: int, open_nodes: set[NodeName]
) -> None:
    limited_job = replace(job(words), time_limit_seconds=7200.0)
    nodes = replace(BIG, reserved_from=3600.0), SMALL
    access = Access(Reading(0.0, nodes, (limited_job,)), {BIG.name: 4, SMALL.name: idle_elsewhere})
    assert access.nodes(limited_job) == open_nodes


def test_a_run_that_is_cut_short_ends_before_the_reservation() -> None:
    nodes = [replace(BIG, reserved_from=3600.0), SMALL]
    limited_job = replace(job("time_min:30"), time_limit_seconds=7200.0)
    assert shortened_minutes(limited_job, nodes, 0.0) == 59
    assert shortened_minutes(limited_job, nodes, 1750.0) == 30  # never less than it asks for
    assert shortened_minutes(limited_job, [SMALL], 0.0) is None
    assert shortened_minutes(replace(limited_job, time_limit_seconds=3600.0), nodes, 0.0) is None
    assert shortened_minutes(replace(limited_job, time_limit_seconds=None), nodes, 0.0) == 59
    assert shortened_minutes(replace(limited_job, options=NO_OPTIONS), nodes, 0.0) is None


def test_gpu_types_that_were_not_requested_are_excluded() -> None:
    typed_job = job("type:v100")
    assert Access(Reading(0.0, (BIG, SMALL), (typed_job,)), {}).nodes(typed_job) == {SMALL.name}


@pytest.mark.parametrize(
    ("words", "waited_seconds", "segment", "max_switches"),
    [
        ("", 0.0, None, None),
        ("switches:2", 1e9, None, 2),
        ("switches:1@60", 59.0, None, 1),
        ("switches:1@60", 60.0, None, None),
        ("switches:1@0", 0.0, None, None),
        ("segment:4", 0.0, 4, None),
        ("segment:4|switches:2", 1e9, 4, 2),
        ("segment:0|switches:none", 0.0, None, None),
    ],
)
def test_segments_and_switches_become_rules(
    words: str, waited_seconds: float, segment: int | None, max_switches: int | None
) -> None:
    rules = on_racks(Rules(per_node=2, shape=ShapeRule.EVEN), job(words), waited_seconds)
    assert rules == Rules(
        per_node=2, shape=ShapeRule.EVEN, segment=segment, max_switches=max_switches
    )


def test_users_are_told_how_long_a_switches_request_counts() -> None:
    wishful_job = job("switches:1@3600")
    counts = racks_note(wishful_job, 1.0, has_racks=True)
    assert counts == "--switches=1 counts until it has waited 1:00:00"
    expired_note = racks_note(wishful_job, 3600.0, has_racks=True)
    assert expired_note == "--switches=1 no longer counts: it has waited the 1:00:00 that it names"


def test_users_are_told_that_racks_are_unknown() -> None:
    assert "--switches changes nothing" in racks_note(job("switches:1"), 0.0, has_racks=False)
    racks_remark = racks_note(job("segment:2|switches:1"), 0.0, has_racks=False)
    assert "--switches and --segment change nothing" in racks_remark
    assert racks_note(job("segment:2|switches:1"), 0.0, has_racks=True) == ""
    assert racks_note(job(), 0.0, has_racks=False) == ""


BLOCK_NODES = tuple(
    NodeReading(NodeName(f"n{i}"), GpuType("a100"), 4, 8, switches=(f"b{i // 2}",))
    for i in range(4)
)


@pytest.mark.parametrize(
    ("several", "shape", "reqs", "expected", "has_note"),
    [
        (SeveralBlocks.ANY, ShapeRule.ANY, (1, 16), (ShapeRule.ANY, None), False),
        (SeveralBlocks.EVEN, ShapeRule.ANY, (1, 8), (ShapeRule.EVEN, None), True),
        (SeveralBlocks.EVEN, ShapeRule.ANY, (1, 4), (ShapeRule.EVEN, None), False),
        (SeveralBlocks.EVEN, ShapeRule.EVEN, (8, 16), (ShapeRule.EVEN, None), False),
        (SeveralBlocks.NONE, ShapeRule.EVEN, (1, 16), (ShapeRule.EVEN, 1), True),
        (SeveralBlocks.NONE, ShapeRule.EVEN, (12, 16), (ShapeRule.EVEN, None), False),
        (SeveralBlocks.NONE, ShapeRule.NODE, (1, 4), (ShapeRule.NODE, None), False),
    ],
)
def test_jobs_use_only_shapes_that_slurm_starts_over_several_blocks(
    several: SeveralBlocks,
    shape: ShapeRule,
    reqs: tuple[int, ...],
    expected: tuple[ShapeRule, int | None],
    has_note: bool,
) -> None:
    blocks = BlockRule.from_reading(Reading(0.0, BLOCK_NODES, (), several_blocks=several))
    rules, note = blocks.apply(Rules(shape=shape), reqs)
    assert (rules.shape, rules.max_switches) == expected
    assert bool(note) == has_note


GROUPS = "whole groups of 2 nodes with 4 GPUs each"


@pytest.mark.parametrize(
    ("per_node", "segment", "reqs", "note"),
    [
        (4, 2, (8, 16), ""),
        (
            4,
            2,
            (4, 8, 12),
            "not on 12 GPUs, which make no whole groups of 2 nodes with 4 GPUs each",
        ),
        (4, 2, (12, 20), "none of its GPU counts makes whole groups of 2 nodes with 4 GPUs each"),
        (4, 8, (12,), ""),
        (None, 2, (12,), ""),
        (4, None, (12,), ""),
    ],
)
def test_counts_that_do_not_divide_into_segments_are_named(
    per_node: int | None, segment: int | None, reqs: tuple[int, ...], note: str
) -> None:
    shape = ShapeRule.EVEN if per_node else ShapeRule.ANY
    assert segments_note(Rules(shape=shape, per_node=per_node, segment=segment), reqs) == note

"""Which leaf switches jobs with --switches get."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopsd.core.queue.switches import on_switches
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, Node, ThroughputTable
from hopsd.model.plan import PlanSettings, RoundInfo, Snapshot
from hopsd.model.rules import Rules, ShapeRule
from hopsd.policies.registry import get

A, V = GpuType("a100"), GpuType("v100")
TABLES = {
    A: ThroughputTable({1: 100.0}, {2: 100.0}),
    V: ThroughputTable({1: 50.0}, {2: 50.0}),
}
PAIRS = Rules(shape=ShapeRule.EVEN, per_node=4)


def cluster(*idle: int, kind: GpuType = A) -> tuple[tuple[Node, ...], dict[NodeName, str]]:
    """Nodes of 4 GPUs, two on each switch."""
    nodes = tuple(Node(NodeName(f"n{at}"), kind, 4, free) for at, free in enumerate(idle))
    return nodes, {node.name: f"s{at // 2}" for at, node in enumerate(nodes)}


def job(number: int, *reqs: int, rules: Rules = PAIRS, **more: object) -> Job:
    made = Job(JobId(str(number)), UserName("u"), float(number), 0.0, reqs, TABLES, rules=rules)
    return replace(made, **more)  # type: ignore[arg-type]


def chosen(
    jobs: list[Job], nodes: tuple[Node, ...], switches: dict[NodeName, str], most: int = 1
) -> dict[str, set[str]]:
    found = on_switches(
        Snapshot(100.0, RoundInfo(first=False, seconds=60.0), nodes, tuple(jobs)),
        dict.fromkeys([one.id for one in jobs], most),
        switches,
    )
    return {one.id: {switches[name] for name in one.rules.nodes or switches} for one in found.jobs}


def test_jobs_that_wait_together_take_different_switches_and_all_start() -> None:
    nodes, switches = cluster(4, 4, 4, 4, 4, 4)
    jobs = [job(number, 8) for number in (1, 2, 3)]
    assert sorted(map(sorted, chosen(jobs, nodes, switches).values())) == [["s0"], ["s1"], ["s2"]]
    snapshot = Snapshot(100.0, RoundInfo(first=True, seconds=60.0), nodes, tuple(jobs))
    narrowed = on_switches(snapshot, dict.fromkeys(["1", "2", "3"], 1), switches)  # type: ignore[arg-type]
    assert len(get("hops")(narrowed, PlanSettings()).placements) == 3


def test_a_small_job_leaves_a_large_one_the_switch_that_it_needs() -> None:
    nodes, switches = cluster(4, 4, 4, 0)
    assert chosen([job(1, 4), job(2, 8)], nodes, switches) == {"1": {"s1"}, "2": {"s0"}}


def test_the_faster_gpus_come_before_the_tighter_fit() -> None:
    nodes, switches = cluster(4, 4, 4, 4)
    nodes = (*nodes[:2], *(replace(node, gpu_type=V) for node in nodes[2:]))
    assert chosen([job(1, 8)], nodes, switches) == {"1": {"s0"}}
    assert chosen([job(1, 8), job(2, 8)], nodes, switches) == {"1": {"s0"}, "2": {"s1"}}


def test_a_job_that_cannot_start_now_waits_where_it_ever_could() -> None:
    nodes, switches = cluster(4, 0, 0)  # the second switch has one node
    assert chosen([job(1, 8)], nodes, switches) == {"1": {"s0"}}
    nodes, switches = cluster(3, 3, 0, 0)
    assert chosen([job(1, 8), job(2, 8)], nodes, switches) == {"1": {"s0"}, "2": {"s1"}}


def test_a_running_job_keeps_its_switch() -> None:
    nodes, switches = cluster(4, 4, 0, 0)
    running = job(1, 8, running=Allocation.of({"n2": 4, "n3": 4}))
    first = RoundInfo(first=True, seconds=60.0)
    found = on_switches(
        Snapshot(100.0, first, nodes, (running, job(2, 8))),
        {JobId("1"): 1, JobId("2"): 1},
        switches,
    )
    assert [one.rules.nodes for one in found.jobs] == [{"n2", "n3"}, {"n0", "n1"}]


def test_jobs_on_one_node_and_wishes_for_all_switches_change_nothing() -> None:
    nodes, switches = cluster(4, 4, 4, 4)
    one_node = job(1, 4, rules=Rules(shape=ShapeRule.NODE))
    assert chosen([one_node], nodes, switches) == {"1": {"s0", "s1"}}
    assert chosen([job(1, 8)], nodes, switches, most=2) == {"1": {"s0", "s1"}}


@given(
    st.lists(st.integers(0, 4), min_size=2, max_size=10),
    st.lists(st.sampled_from([4, 8, 12]), min_size=1, max_size=5),
    st.integers(1, 3),
    st.randoms(use_true_random=False),
)
def test_never_more_switches_than_wished_whatever_the_order(
    idle: list[int], sizes: list[int], most: int, random: object
) -> None:
    nodes, switches = cluster(*idle)
    jobs = [job(number, size) for number, size in enumerate(sizes)]
    found = chosen(jobs, nodes, switches, most)
    assert (
        all(0 < len(names) <= most for names in found.values())
        or len(set(switches.values())) <= most
    )
    shuffled = list(jobs)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert chosen(shuffled, nodes, switches, most) == found


@pytest.mark.parametrize("most", [1, 2])
def test_without_a_known_switch_all_nodes_are_together(most: int) -> None:
    nodes, _ = cluster(4, 4, 4, 4)
    snapshot = Snapshot(1.0, RoundInfo(first=True, seconds=60.0), nodes, (job(1, 16),))
    assert on_switches(snapshot, {JobId("1"): most}, {}) == snapshot

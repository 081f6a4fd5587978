"""Room for sessions on small clusters: if room is possible, some is found."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hopsd.core.interactive.session_room import Room
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, Node, ThroughputTable
from hopsd.model.plan import RoundInfo, Snapshot
from hopsd.model.rules import Rules, ShapeRule

TYPE = GpuType("a100")
TABLES = {TYPE: ThroughputTable({1: 1.0}, {2: 0.9})}
NODE = Rules(shape=ShapeRule.NODE)


def job(name: str, reqs: tuple[int, ...], running: dict[str, int], **fields: object) -> Job:
    pending_job = Job(JobId(name), UserName("ann"), 0.0, 0.0, reqs, TABLES, restart_seconds=30.0)
    return replace(pending_job, running=Allocation.of(running), **fields)  # type: ignore[arg-type]


@st.composite
def situations(draw: st.DrawFn) -> tuple[Snapshot, list[Job], frozenset[JobId], Job]:
    """A cluster with running jobs, those that may move, those known to save, and a session."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    free = {f"n{i}": size for i, size in enumerate(sizes)}
    jobs: list[Job] = []
    for number in range(draw(st.integers(0, 6))):
        allocation: dict[str, int] = {}
        for node in draw(st.lists(st.sampled_from(sorted(free)), min_size=1, max_size=2)):
            if free[node]:
                allocation[node] = draw(st.integers(1, free[node])) + allocation.get(node, 0)
                free[node] = (
                    sizes[int(node[1:])]
                    - sum(j.running.on(NodeName(node)) for j in jobs)
                    - allocation[node]
                )
        if allocation:
            total = sum(allocation.values())
            counts = draw(st.sets(st.integers(1, total)))
            jobs.append(job(str(number), tuple(sorted({*counts, total})), allocation))
    nodes = tuple(
        Node(NodeName(name), TYPE, sizes[i], idle) for i, (name, idle) in enumerate(free.items())
    )
    movable = [candidate for candidate in jobs if draw(st.booleans())]
    proven_ids = frozenset(candidate.id for candidate in movable if draw(st.booleans()))
    session = job("99", (draw(st.integers(1, 4)),), {}, rules=NODE)
    snapshot = Snapshot(100.0, RoundInfo(False, 600.0), nodes, (*jobs, session))
    return snapshot, movable, proven_ids, session


@given(situations())
def test_a_session_finds_room_wherever_movable_jobs_could_leave_it(
    situation: tuple[Snapshot, list[Job], frozenset[JobId], Job],
) -> None:
    snapshot, movable, proven_ids, session = situation
    room = Room(snapshot, movable, proven_ids)
    allocation = room.place(session)
    gpus_per_node = session.reqs[0]
    could = {
        node.name: node.idle + sum(candidate.running.on(node.name) for candidate in movable)
        for node in snapshot.nodes
    }
    assert (allocation is not None) == any(gpus >= gpus_per_node for gpus in could.values())
    if any(node.idle >= gpus_per_node for node in snapshot.nodes):
        assert room.concessions == {}
    gpus_on_node = {
        node.name: allocation.on(node.name) if allocation else 0 for node in snapshot.nodes
    }
    for candidate in snapshot.jobs:
        target = (
            room.concessions[candidate.id].target
            if candidate.id in room.concessions
            else candidate.running
        )
        assert not target or target == candidate.running or target.gpus in candidate.reqs
        for node, gpus in target:
            assert gpus <= candidate.running.on(node), "nobody moves to other GPUs"
            gpus_on_node[node] += gpus
    assert all(gpus_on_node[node.name] <= node.gpus for node in snapshot.nodes)
    assert room.concessions.keys() <= {candidate.id for candidate in movable}


def test_a_training_stops_if_shrinking_it_and_all_others_frees_too_little() -> None:
    """Regression: shrinking is cheaper per GPU; if it freed too little, nothing else was tried."""
    small, large = job("0", (1,), {"n0": 1}), job("1", (1, 2), {"n0": 2})
    session = job("99", (3,), {}, rules=NODE)
    node = Node(NodeName("n0"), TYPE, 3, 0)
    snapshot = Snapshot(100.0, RoundInfo(False, 600.0), (node,), (small, large, session))
    room = Room(snapshot, [small, large], frozenset({JobId("1")}))
    assert room.place(session) is not None
    assert {id_: concession.target.gpus for id_, concession in room.concessions.items()} == {
        "0": 0,
        "1": 0,
    }


@given(situations())
def test_the_order_of_jobs_changes_nothing(
    situation: tuple[Snapshot, list[Job], frozenset[JobId], Job],
) -> None:
    snapshot, movable, proven_ids, session = situation
    backwards = replace(snapshot, jobs=tuple(reversed(snapshot.jobs)))
    room, reversed_room = (
        Room(snapshot, movable, proven_ids),
        Room(backwards, movable[::-1], proven_ids),
    )
    assert room.place(session) == reversed_room.place(session)
    assert room.concessions == reversed_room.concessions


def test_a_training_that_can_shrink_is_asked_before_one_that_must_stop() -> None:
    nodes = (Node(NodeName("n0"), TYPE, 4, 0), Node(NodeName("n1"), TYPE, 1, 0))
    small, large = job("1", (1,), {"n1": 1}), job("2", (2, 3, 4), {"n0": 4})
    session = job("99", (1,), {}, rules=NODE)
    snapshot = Snapshot(100.0, RoundInfo(False, 600.0), nodes, (small, large, session))
    room = Room(snapshot, [small, large], frozenset({small.id, large.id}))
    assert room.place(session) == Allocation.of({"n0": 1})
    assert room.concessions[large.id].target == Allocation.of({"n0": 3})


def test_a_session_on_several_nodes_takes_equal_parts() -> None:
    nodes = tuple(Node(NodeName(f"n{i}"), TYPE, 4, 2 * i) for i in range(2))
    holder = job("1", (1, 4), {"n0": 4})
    rules = Rules(shape=ShapeRule.EVEN, per_node=2)
    session = job("99", (4,), {}, rules=rules)
    snapshot = Snapshot(100.0, RoundInfo(False, 600.0), nodes, (holder, session))
    room = Room(snapshot, [holder], frozenset({holder.id}))
    assert room.place(session) == Allocation.of({"n0": 2, "n1": 2})
    assert room.concessions[holder.id].target == Allocation.of({"n0": 1})

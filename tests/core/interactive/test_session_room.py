"""Room for sessions, on small clusters: there is always some where there could be."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hopsd.core.interactive.room import Room
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, Node, ThroughputTable
from hopsd.model.plan import RoundInfo, Snapshot
from hopsd.model.rules import Rules, ShapeRule

TYPE = GpuType("a100")
TABLES = {TYPE: ThroughputTable({1: 1.0}, {2: 0.9})}
NODE = Rules(shape=ShapeRule.NODE)


def job(name: str, reqs: tuple[int, ...], running: dict[str, int], **more: object) -> Job:
    made = Job(JobId(name), UserName("ann"), 0.0, 0.0, reqs, TABLES, restart_seconds=30.0)
    return replace(made, running=Allocation.of(running), **more)  # type: ignore[arg-type]


@st.composite
def situations(draw: st.DrawFn) -> tuple[Snapshot, list[Job], frozenset[JobId], Job]:
    """A cluster with running jobs, those that may move, those that proved it, and a session."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    free = {f"n{i}": size for i, size in enumerate(sizes)}
    jobs: list[Job] = []
    for number in range(draw(st.integers(0, 6))):
        held: dict[str, int] = {}
        for node in draw(st.lists(st.sampled_from(sorted(free)), min_size=1, max_size=2)):
            if free[node]:
                held[node] = draw(st.integers(1, free[node])) + held.get(node, 0)
                free[node] = (
                    sizes[int(node[1:])]
                    - sum(j.running.on(NodeName(node)) for j in jobs)
                    - held[node]
                )
        if held:
            total = sum(held.values())
            others = draw(st.sets(st.integers(1, total)))
            jobs.append(job(str(number), tuple(sorted({*others, total})), held))
    nodes = tuple(
        Node(NodeName(name), TYPE, sizes[i], idle) for i, (name, idle) in enumerate(free.items())
    )
    movable = [one for one in jobs if draw(st.booleans())]
    proven = frozenset(one.id for one in movable if draw(st.booleans()))
    session = job("99", (draw(st.integers(1, 4)),), {}, rules=NODE)
    snapshot = Snapshot(100.0, RoundInfo(False, 600.0), nodes, (*jobs, session))
    return snapshot, movable, proven, session


@given(situations())
def test_a_session_finds_room_wherever_those_that_may_move_could_leave_it(
    situation: tuple[Snapshot, list[Job], frozenset[JobId], Job],
) -> None:
    snapshot, movable, proven, session = situation
    room = Room(snapshot, movable, proven)
    given_ = room.place(session)
    needed = session.reqs[0]
    could = {
        node.name: node.idle + sum(one.running.on(node.name) for one in movable)
        for node in snapshot.nodes
    }
    assert (given_ is not None) == any(gpus >= needed for gpus in could.values())
    if any(node.idle >= needed for node in snapshot.nodes):
        assert room.concessions == {}
    held = {node.name: given_.on(node.name) if given_ else 0 for node in snapshot.nodes}
    for one in snapshot.jobs:
        kept = room.concessions[one.id].target if one.id in room.concessions else one.running
        assert not kept or kept == one.running or kept.gpus in one.reqs
        for node, gpus in kept:
            assert gpus <= one.running.on(node), "nobody moves to other GPUs"
            held[node] += gpus
    assert all(held[node.name] <= node.gpus for node in snapshot.nodes)
    assert room.concessions.keys() <= {one.id for one in movable}


def test_a_training_stops_where_its_shrinking_and_all_others_free_too_little() -> None:
    """Shrinking is cheaper for each GPU, and was the last word."""
    small, large = job("0", (1,), {"n0": 1}), job("1", (1, 2), {"n0": 2})
    session = job("99", (3,), {}, rules=NODE)
    node = Node(NodeName("n0"), TYPE, 3, 0)
    snapshot = Snapshot(100.0, RoundInfo(False, 600.0), (node,), (small, large, session))
    room = Room(snapshot, [small, large], frozenset({JobId("1")}))
    assert room.place(session) is not None
    assert {id_: made.target.gpus for id_, made in room.concessions.items()} == {"0": 0, "1": 0}


@given(situations())
def test_the_order_of_jobs_changes_nothing(
    situation: tuple[Snapshot, list[Job], frozenset[JobId], Job],
) -> None:
    snapshot, movable, proven, session = situation
    backwards = replace(snapshot, jobs=tuple(reversed(snapshot.jobs)))
    one, other = Room(snapshot, movable, proven), Room(backwards, movable[::-1], proven)
    assert one.place(session) == other.place(session)
    assert one.concessions == other.concessions


def test_one_that_shrinks_is_asked_before_one_that_would_stop() -> None:
    nodes = (Node(NodeName("n0"), TYPE, 4, 0), Node(NodeName("n1"), TYPE, 1, 0))
    small, large = job("1", (1,), {"n1": 1}), job("2", (2, 3, 4), {"n0": 4})
    session = job("99", (1,), {}, rules=NODE)
    snapshot = Snapshot(100.0, RoundInfo(False, 600.0), nodes, (small, large, session))
    room = Room(snapshot, [small, large], frozenset({small.id, large.id}))
    assert room.place(session) == Allocation.of({"n0": 1})
    assert room.concessions[large.id].target == Allocation.of({"n0": 3})


def test_a_session_on_several_nodes_takes_as_many_of_each() -> None:
    nodes = tuple(Node(NodeName(f"n{i}"), TYPE, 4, 2 * i) for i in range(2))
    held = job("1", (1, 4), {"n0": 4})
    rules = Rules(shape=ShapeRule.EVEN, per_node=2)
    session = job("99", (4,), {}, rules=rules)
    snapshot = Snapshot(100.0, RoundInfo(False, 600.0), nodes, (held, session))
    room = Room(snapshot, [held], frozenset({held.id}))
    assert room.place(session) == Allocation.of({"n0": 2, "n1": 2})
    assert room.concessions[held.id].target == Allocation.of({"n0": 1})

"""Greedy placement; no policy ever gives a GPU twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from hopsd.model.allocation import Allocation
from hopsd.model.devices import CPU, usable
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, JobState, Node, ThroughputTable
from hopsd.model.plan import PlanSettings, PriorityName, RoundInfo, Snapshot
from hopsd.policies.placing import Servers
from hopsd.policies.registry import get, names

A, B = GpuType("a"), GpuType("b")
TABLES = {
    A: ThroughputTable({1: 1.0}, {2: 0.8}),
    B: ThroughputTable({1: 2.0}),
    CPU: ThroughputTable({1: 3.0}, {2: 3.0}),
}


def job(name: str, reqs: tuple[int, ...], **changes: object) -> Job:
    fields = {
        "id": JobId(name),
        "user": UserName("u"),
        "submit": 0.0,
        "wait_seconds": 10.0,
        "reqs": reqs,
        "samples": 1000.0,
        "throughput": usable(TABLES, cpu=False),
    }
    return Job(**(fields | changes))  # type: ignore[arg-type]


def nodes(**idle: int) -> tuple[Node, ...]:
    types = {"a": A, "b": B, "c": CPU}
    return tuple(Node(NodeName(n), types[n[0]], 8, free) for n, free in idle.items())


def servers(**idle: int) -> Servers:
    return Servers(Snapshot(0.0, RoundInfo(True, 60.0), nodes(**idle), ()))


def test_the_fastest_server_is_chosen_then_the_tightest() -> None:
    assert servers(a0=8, b0=8, b1=4).fastest(job("1", (2,)), 2) == Allocation.of({"b1": 2})
    assert servers(a0=8, a1=3).fastest(job("1", (2,)), 2) == Allocation.of({"a1": 2})


def test_jobs_are_spread_over_as_few_servers_as_possible_if_they_can_be() -> None:
    placement = servers(a0=3, a1=6, a2=4, b0=7).fastest(job("1", (9,)), 9)
    assert placement == Allocation.of({"a1": 6, "a2": 3})
    assert servers(b0=7, b1=7).fastest(job("1", (9,)), 9) is None


@pytest.mark.parametrize(("reqs", "median"), [((4,), 4), ((1, 2, 4, 8), 2), ((1, 2, 99), 1)])
def test_the_rigid_count_is_the_lower_median_of_feasible_counts(
    reqs: tuple[int, ...], median: int
) -> None:
    assert servers(a0=0, b0=8).rigid(job("1", reqs)) == median


def test_a_job_that_refuses_the_remaining_cpus_is_told() -> None:
    snapshot = Snapshot(0.0, RoundInfo(True, 60.0), nodes(c0=8), (job("1", (1,), throughput={}),))
    (reason,) = get("hops")(snapshot, PlanSettings()).waiting.values()
    assert reason.text.endswith("nor CPUs that it takes (cpu=yes)")


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """Some jobs run, some are pinned, some held; other jobs hold parts of nodes.

    CPUs are the fastest devices, and some users do not want any.
    """
    free = {f"{t}{i}": draw(st.integers(4, 8)) for t in "abc" for i in range(2)}
    idle_by_node = Counter(free)
    known_tables = [TABLES, {CPU: TABLES[CPU]}]  # the latter if all nodes with GPUs are down
    jobs = []
    for number in range(draw(st.integers(1, 10))):
        reqs = tuple(sorted(draw(st.sets(st.integers(1, 12), min_size=1, max_size=4))))
        cpu = draw(st.booleans())
        node = draw(st.sampled_from([n for n in sorted(free) if cpu or n[0] != "c"]))
        runs = draw(st.booleans()) and reqs[0] <= idle_by_node[node]
        if runs:
            idle_by_node[node] -= reqs[0]
        jobs.append(
            job(
                str(number),
                reqs,
                running=Allocation.of({node: reqs[0]} if runs else {}),
                throughput=usable(draw(st.sampled_from(known_tables)), cpu=cpu),
                preemptible=draw(st.booleans()),
                wait_seconds=draw(st.floats(0.0, 1e5)),
                submit=float(draw(st.integers(0, 900))),
                restart_seconds=30.0,
                state=JobState.WAITING if runs else draw(st.sampled_from(JobState)),
            )
        )
    first = draw(st.booleans())
    return Snapshot(1000.0, RoundInfo(first, 360.0), nodes(**dict(idle_by_node)), tuple(jobs))


# Its table has no speed for the GPU type on which it runs.
STRANDED_JOB = job(
    "0", (1,), running=Allocation.of({"a0": 1}), throughput={B: TABLES[B]}, restart_seconds=30.0
)


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
@settings(max_examples=25, deadline=None)
@given(snapshot=snapshots())
@example(snapshot=Snapshot(1000.0, RoundInfo(True, 360.0), nodes(a0=7, b0=8), (STRANDED_JOB,)))
def test_every_policy_gives_only_idle_gpus_in_accepted_counts(
    name: str, snapshot: Snapshot
) -> None:
    plan = get(name)(snapshot, PlanSettings(time_limit_seconds=20.0))
    first = snapshot.round.first
    idle = Counter({node.name: node.idle for node in snapshot.nodes})
    jobs = {j.id: j for j in snapshot.jobs}
    for running in snapshot.jobs:
        if first and running.preemptible:
            idle.update(running.running.as_dict())
    for job_id, allocation in plan.placements.items():
        placed_job = jobs[job_id]
        assert placed_job.state is JobState.WAITING
        assert not placed_job.running or (first and placed_job.preemptible)
        assert allocation.gpus in placed_job.reqs
        types = {n[0] for n in allocation.nodes}
        assert len(types) == 1
        assert CPU in placed_job.throughput or types != {"c"}, "its user wants GPUs"
        idle.subtract(allocation.as_dict())
    assert min(idle.values()) >= 0
    waits = {
        j.id for j in snapshot.jobs
        if j.id not in plan.placements and not j.running and j.state is JobState.WAITING
    }  # fmt: skip
    only_first = name.startswith(("sia", "gavel"))
    if first or not only_first:
        assert waits <= set(plan.waiting)


LONE = job("1", (2,), restart_seconds=30.0)
CROWDED_CASES = (
    Snapshot(1000.0, RoundInfo(True, 360.0), (), (LONE,)),
    Snapshot(
        1000.0,
        RoundInfo(True, 360.0),
        nodes(a0=0),
        (job("0", (8,), running=Allocation.of({"a0": 8}), preemptible=False), LONE),
    ),
)


@pytest.mark.parametrize("priority", PriorityName)
@pytest.mark.parametrize("name", names())
def test_a_job_waits_where_no_gpus_can_be_given(name: str, priority: PriorityName) -> None:
    for snapshot in CROWDED_CASES:
        plan = get(name)(snapshot, PlanSettings(priority=priority))
        assert LONE.id in plan.waiting
        assert LONE.id not in plan.placements


@pytest.mark.parametrize("name", ["srtf", "las"])
@pytest.mark.parametrize("samples", [1000.0, None])
def test_a_job_of_unknown_speed_moves_to_a_type_of_known_speed(
    name: str, samples: float | None
) -> None:
    stranded_job = replace(STRANDED_JOB, samples=samples)
    snapshot = Snapshot(1000.0, RoundInfo(True, 360.0), nodes(a0=7, b0=8), (stranded_job,))
    plan = get(name)(snapshot, PlanSettings())
    assert plan.placements == {stranded_job.id: Allocation.of({"b0": 1})}


@st.composite
def idle_clusters(draw: st.DrawFn) -> Snapshot:
    """Servers of one type in several sizes, and one job that could run there."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=4))
    servers = tuple(Node(NodeName(f"a{i}"), A, size, size) for i, size in enumerate(sizes))
    reqs = tuple(sorted(draw(st.sets(st.integers(1, 20), min_size=1, max_size=3))))
    assume(reqs[0] <= sum(sizes))
    return Snapshot(1000.0, RoundInfo(True, 360.0), servers, (job("1", reqs),))


@pytest.mark.parametrize("name", names())
@settings(max_examples=15, deadline=None)
@given(snapshot=idle_clusters())
def test_a_single_job_on_an_idle_cluster_that_can_hold_it_starts(
    name: str, snapshot: Snapshot
) -> None:
    plan = get(name)(snapshot, PlanSettings(time_limit_seconds=20.0))
    assert plan.placements[JobId("1")].gpus in snapshot.jobs[0].reqs

"""Moves from which no job gains."""

from __future__ import annotations

from dataclasses import replace

from hopsd.core.queue.restarts import needless_restarts
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, Node, ThroughputTable
from hopsd.model.plan import Plan, PlanSettings, RoundInfo, Snapshot
from hopsd.policies.registry import get

A, V = GpuType("a100"), GpuType("v100")
NODES = (
    Node(NodeName("n0"), A, 4, 0),
    Node(NodeName("n1"), A, 4, 4),
    Node(NodeName("n2"), V, 4, 4),
)
JOB = Job(
    JobId("1"), UserName("u"), 0.0, 60.0, (4,),
    {A: ThroughputTable({1: 2.0}), V: ThroughputTable({1: 1.0})},
    running=Allocation(((NodeName("n0"), 4),)),
)  # fmt: skip
SECOND_JOB = replace(JOB, id=JobId("2"), running=Allocation())


def allocation_on(node: str) -> Allocation:
    return Allocation(((NodeName(node), 4),))


def needless(placements: dict[str, str], *jobs: Job, first: bool = True) -> set[str]:
    plan = Plan({JobId(job): allocation_on(node) for job, node in placements.items()})
    return set(needless_restarts(Snapshot(0.0, RoundInfo(first, 60.0), NODES, jobs), plan))


def test_a_move_is_needless_if_nobody_takes_the_gpus_and_it_gets_no_faster() -> None:
    assert needless({"1": "n1"}, JOB) == {"1"}
    assert needless({"1": "n2"}, JOB) == {"1"}
    assert needless({}, JOB) == {"1"}
    assert needless({"1": "n0"}, JOB) == set()
    assert needless({"1": "n1", "2": "n0"}, JOB, SECOND_JOB) == set()
    assert needless({"2": "n0"}, JOB, SECOND_JOB) == set()
    assert needless({}, JOB, first=False) == set()
    nodes = (replace(NODES[0], idle=4), NODES[1], replace(NODES[2], idle=0))
    slow = replace(JOB, running=allocation_on("n2"))
    plan = Plan({JOB.id: allocation_on("n1")})
    assert not needless_restarts(Snapshot(0.0, RoundInfo(True, 60.0), nodes, (slow,)), plan)


def test_hops_moves_no_job_without_gain_while_its_restart_time_is_unknown() -> None:
    for running in ("n0", "n1"):
        job = replace(JOB, running=allocation_on(running), restart_seconds=0.0)
        nodes = tuple(replace(n, idle=0 if n.name == running else 4) for n in NODES)
        snapshot = Snapshot(0.0, RoundInfo(True, 60.0), nodes, (job,))
        plan = get("hops")(snapshot, PlanSettings())
        assert plan.placements == {job.id: job.running}

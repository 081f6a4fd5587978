"""A job without a place keeps no part of a limit from those behind it."""

from __future__ import annotations

from dataclasses import replace

from hopsd.model.allocation import Allocation
from hopsd.model.cluster import Node
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, ThroughputTable
from hopsd.model.plan import PlanSettings, RoundInfo, Snapshot
from hopsd.model.reason import ReasonCode
from hopsd.model.rules import Limit
from hopsd.policies.past_limits import PastLimits
from hopsd.policies.registry import get

HOPS = get("hops")
ON_B = Allocation.of({NodeName("b0"): 4})


def job(name: str, gpu_type: str, priority: float) -> Job:
    tables = {GpuType(gpu_type): ThroughputTable({4: 1.0})}
    return Job(JobId(name), UserName("u"), 0.0, 0.0, (4,), tables, priority=priority)


def snapshot(*, first: bool) -> Snapshot:
    """A plain job holds the only server that job 1 could have; 2 and 3 could have the other."""
    nodes = (
        Node(NodeName("a0"), GpuType("a"), 4, 0),
        Node(NodeName("b0"), GpuType("b"), 4, 4),
    )
    jobs = job("1", "a", 3.0), job("2", "b", 2.0), job("3", "b", 1.0)
    limit = Limit("QOS small", frozenset(one.id for one in jobs), gpus=4)
    return Snapshot(0.0, RoundInfo(first, 60.0), nodes, jobs, limits=(limit,))


def test_what_a_job_without_a_place_does_not_use_of_a_limit_is_given_on() -> None:
    for first in (True, False):
        seen = snapshot(first=first)
        alone = HOPS(seen, PlanSettings())
        assert alone.placements == {}
        assert alone.waiting[JobId("2")].code is ReasonCode.LIMIT
        plan = PastLimits(HOPS)(seen, PlanSettings())
        assert plan.placements == {JobId("2"): ON_B}
        assert (plan.fragments, plan.adjusted, set(plan.waiting)) == (0, (JobId("2"),), {"1", "3"})
        assert plan.waiting[JobId("1")] == alone.waiting[JobId("1")]
        told = "QOS small: 4 of 4 GPUs asked for by 2; it asks for 4 GPUs or more"
        assert plan.waiting[JobId("3")].text == told


def test_a_plan_that_leaves_nothing_unused_stays_as_it_is() -> None:
    seen = snapshot(first=True)
    taken = tuple(replace(node, idle=0) for node in seen.nodes)
    idle = tuple(replace(node, idle=node.gpus) for node in seen.nodes)
    paper = PlanSettings(paper_exact=True)
    for each, settings in (
        (replace(seen, nodes=taken), PlanSettings()),
        (replace(seen, nodes=idle), PlanSettings()),
        (replace(seen, limits=()), PlanSettings()),
        (seen, paper),
    ):
        plan, same = PastLimits(HOPS)(each, settings), HOPS(each, settings)
        assert replace(plan, seconds={}) == replace(same, seconds={})

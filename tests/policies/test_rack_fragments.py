"""The second figure of fragments: idle GPUs worth whole racks that no rack-bound job can use."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.racks.instances import mixed_snapshot
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.model.job import Job
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.model.reason import Reason, ReasonCode
from hopsd.model.rules import Rules, ShapeRule
from hopsd.policies.rack_fragments import rack_fragments
from hopsd.policies.registry import get

WAITS = Reason(ReasonCode.OUTSIDE_WINDOW, "")


def racks(idle: str, **rules: object) -> tuple[Snapshot, Job]:
    """Return racks of two nodes with four GPUs, ``idle`` GPUs on each node, and a waiting job."""
    snapshot = mixed_snapshot(4 * len(idle), 0.0, seed=0)
    nodes = tuple(
        replace(node, idle=int(gpus), switches=("core", f"r{index // 2}"))
        for index, (node, gpus) in enumerate(zip(snapshot.nodes, idle, strict=True))
    )
    bound = Rules(shape=ShapeRule.EVEN, per_node=4, **rules)  # type: ignore[arg-type]
    job = replace(snapshot.jobs[0], reqs=(8,), rules=bound)
    return replace(snapshot, nodes=nodes, jobs=(job,)), job


@pytest.mark.parametrize(
    ("idle", "rules", "fragments"),
    [
        ("404040", {"segment": 2}, 8),  # of 12 GPUs, one rack's worth of 8
        ("40404040", {"segment": 2}, 16),
        ("4400", {"segment": 2}, 0),  # the job fits
        ("4440", {"segment": 2}, 0),  # scattered, but less than a rack's worth
        ("404040", {"max_switches": 1}, 8),
        ("404040", {"max_switches": 2}, 0),
        ("404040", {"segment": 1}, 0),
        ("404040", {}, 0),  # not bound to racks
    ],
)
def test_scattered_gpus_count_by_racks(idle: str, rules: dict[str, int], fragments: int) -> None:
    snapshot, job = racks(idle, **rules)
    assert rack_fragments(snapshot, Plan({}, waiting={job.id: WAITS})) == fragments
    assert rack_fragments(snapshot, Plan({})) == 0


def test_moves_of_the_plan_are_included() -> None:
    snapshot, job = racks("44004040", segment=2)
    names = [node.name for node in snapshot.nodes]
    running = replace(
        job, id=JobId("9"), rules=Rules(), running=Allocation.of({names[3]: 4}), reqs=(4,)
    )
    snapshot = replace(snapshot, jobs=(job, running))
    moving_plan = Plan(
        {running.id: Allocation.of({names[0]: 4})}, waiting={job.id: WAITS}
    )  # n1, n3, n4 and n6 are idle
    assert rack_fragments(snapshot, moving_plan) == 16


def test_plans_of_every_policy_report_rack_fragments() -> None:
    snapshot, job = racks("404040", segment=2)
    plan = get("hops")(snapshot, PlanSettings())
    assert job.id in plan.waiting
    assert plan.rack_fragments == 8

"""Partition tiers: higher tiers come first, lower ones get the rest, whatever the policy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, Node, ThroughputTable
from hopsd.model.plan import Plan, PlanSettings, RoundInfo, Snapshot
from hopsd.model.rules import Rules
from hopsd.policies.registry import get

A = GpuType("a100")
N0, N1 = NodeName("n0"), NodeName("n1")
PREEMPTIVE = ("hops", "hops+", "srtf", "sia", "gavel", "themis")


def job(number: int, tier: int, gpus: int, wait: float = 60.0, **fields: object) -> Job:
    tier_job = Job(
        JobId(str(number)), UserName("u"), float(number), wait, (gpus,),
        {A: ThroughputTable({1: 1.0}, {2: 1.0})}, age_seconds=3600.0, tier=tier,
    )  # fmt: skip
    return replace(tier_job, **fields)  # type: ignore[arg-type]


def plan_with(name: str, *jobs: Job, first: bool = True, **room: object) -> Plan:
    gpus_in_use = {node: sum(j.running.on(node) for j in jobs) for node in (N0, N1)}
    nodes = tuple(Node(n, A, 4, 4 - gpus_in_use[n], **room) for n in (N0, N1))  # type: ignore[arg-type]
    return get(name)(Snapshot(7200.0, RoundInfo(first, 600.0), nodes, jobs), PlanSettings())


@pytest.mark.parametrize("name", [*PREEMPTIVE, "fifo", "slurm"])
def test_jobs_of_a_higher_tier_come_first_however_long_others_waited(name: str) -> None:
    plan = plan_with(name, job(1, 1, 8, wait=1e6), job(2, 2, 4), job(3, 1, 4, wait=1e5))
    assert JobId("2") in plan.placements
    assert JobId("1") not in plan.placements


@pytest.mark.parametrize("name", PREEMPTIVE)
def test_lower_tiers_yield_at_a_rounds_start_unless_preemption_is_off(name: str) -> None:
    lower = job(1, 1, 8, running=Allocation(((N0, 4), (N1, 4))))
    plan = plan_with(name, lower, job(2, 2, 4))
    assert plan.placements.keys() == {"2"}
    plan = plan_with(name, replace(lower, gives_way=False), job(2, 2, 4))
    assert "2" not in plan.placements
    assert plan.placements.get(lower.id, lower.running) == lower.running


def test_lower_tiers_also_get_the_remaining_cores() -> None:
    rules = Rules(cores_per_gpu=2.0)
    moving_job = job(1, 2, 4, rules=rules, running=Allocation(((N0, 4),)))
    low_tier_jobs = [job(n, 1, 2, rules=rules) for n in (2, 3, 4)]
    plan = plan_with("hops", moving_job, *low_tier_jobs, cores=8, idle_cores=4)
    usage = {n: sum(a.on(n) for a in plan.placements.values()) for n in (N0, N1)}
    assert plan.placements[moving_job.id].gpus == 4
    assert max(usage.values()) <= 4
    assert sum(usage.values()) <= 6


def test_a_single_tier_changes_nothing() -> None:
    jobs = [job(n, 3, 2) for n in range(1, 7)]
    same_tier = [replace(tier_job, tier=1) for tier_job in jobs]
    assert plan_with("hops", *jobs).placements == plan_with("hops", *same_tier).placements

"""Hare as a policy: which GPUs a plan gives, and complete simulations."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sim_cases import cluster, workload
from sim_cases import job as coming
from two_types import A, B, job, snapshot

from hopsd.model.ids import NodeName
from hopsd.model.job import Node, ThroughputTable
from hopsd.model.plan import Plan, PlanSettings
from hopsd.model.reason import ReasonCode
from hopsd.policies.registry import get
from hopsd.sim.engine import SimulationSettings
from hopsd.sim.study import play

NAMES = ["hare", "hare-eft", "hare-dispatch"]


def plan_with(name: str, *args: object, **fields: object) -> Plan:
    return get(name)(snapshot(*args, **fields), PlanSettings())  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_a_job_gets_as_many_gpus_as_its_scale(name: str) -> None:
    plan = plan_with(name, job("1", 4))
    assert plan.placements["1"].gpus == 4  # type: ignore[index]


@pytest.mark.parametrize("name", NAMES)
def test_the_short_job_goes_first(name: str) -> None:
    long, short = job("1", 16, samples=1e6), job("2", 16, samples=1e3)
    plan = plan_with(name, long, short)
    assert list(plan.placements) == ["2"]
    assert plan.waiting[long.id].code is ReasonCode.LOST_TO_OTHERS


@pytest.mark.parametrize("name", NAMES)
def test_tasks_take_turns_on_fewer_gpus_if_requirements_allow(name: str) -> None:
    """A round has eight tasks, and two GPUs are idle: the job runs if it accepts 2 GPUs."""
    elastic = job("1", 2, 8, 16)
    assert plan_with(name, elastic, idle=(2, 0), first=False).placements[elastic.id].gpus == 2
    rigid = job("1", 8)
    assert plan_with(name, rigid, idle=(2, 0), first=False).placements == {}


@pytest.mark.parametrize("name", NAMES)
def test_a_job_stays_where_it_is(name: str) -> None:
    first = plan_with(name, job("1", 4), job("2", 4), job("3", 8))
    jobs = [
        job(n, *sizes, running=first.placements[n])  # type: ignore[index]
        for n, sizes in (("1", [4]), ("2", [4]), ("3", [8]))
    ]
    second_plan = plan_with(name, *jobs, idle=(0, 0))
    assert second_plan.placements == first.placements


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_jobs_changes_nothing(name: str) -> None:
    jobs = [job(str(i), 1 + i % 4, samples=1000.0 + 10 * (i % 3)) for i in range(12)]
    assert plan_with(name, *jobs) == plan_with(name, *reversed(jobs))


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_states_its_distance_from_the_optimum(name: str) -> None:
    plan = plan_with(name, job("1", 16), job("2", 16), job("3", 16))
    assert plan.objective <= plan.upper_bound < 0
    assert plan.gap == pytest.approx(1 - plan.upper_bound / plan.objective)


@pytest.mark.parametrize("name", NAMES)
def test_a_job_too_large_for_the_cluster_waits_with_a_reason(name: str) -> None:
    plan = plan_with(name, job("1", 64))
    assert plan.waiting["1"].code is ReasonCode.NO_CONFIGURATION  # type: ignore[index]


def test_earliest_finish_waits_for_the_fast_gpu() -> None:
    """b is 20 times slower: Algorithm 1 takes the idle GPU, the other rule queues on a."""
    tables = {A: ThroughputTable({1: 1.0}), B: ThroughputTable({1: 0.05})}
    jobs = tuple(job(str(i), 1, samples=300.0, throughput=tables) for i in (1, 2, 3))
    nodes = (Node(NodeName("a0"), A, 1, 1), Node(NodeName("b0"), B, 2, 2))
    case = replace(snapshot(*jobs), nodes=nodes)
    nodes_by_policy = {
        name: {n for w in get(name)(case, PlanSettings()).placements.values() for n in w.nodes}
        for name in NAMES
    }
    assert nodes_by_policy == {
        "hare": {"a0", "b0"},
        "hare-eft": {"a0"},
        "hare-dispatch": {"a0", "b0"},
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_type_unknown_to_the_job_is_not_used(name: str) -> None:
    nodes = (Node(NodeName("b0"), B, 8, 8), Node(NodeName("a0"), A, 8, 8))
    case = replace(snapshot(job("1", 4)), nodes=nodes)
    assert [w.nodes for w in get(name)(case, PlanSettings()).placements.values()] == [("a0",)]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_job_of_a_workload_ends(name: str) -> None:
    site = cluster(a=4, a2=4, b=4)
    jobs = [coming(i, 500.0 * (1 + i % 5), 1 + i % 3, submit=40.0 * i) for i in range(20)]
    settings = SimulationSettings()
    result = play(name, get(name), site, workload(jobs, a=1.0, b=0.3), settings)
    assert result.unfinished == []


@pytest.mark.parametrize("name", NAMES)
def test_jobs_without_samples_are_planned_by_their_expected_time(name: str) -> None:
    jobs = [job("1", 16, samples=None, age_seconds=50.0), job("2", 16, samples=None)]
    assert list(plan_with(name, *jobs).placements) == ["1"]
    late_job = replace(jobs[0], run_seconds=500.0)
    assert list(plan_with(name, late_job, jobs[1]).placements) == ["1"]

"""Sia's program against exhaustive search by dynamic programming, and its details."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hops_rivals.sia import LAMBDA, GpuConfiguration, Sia, choose, restart_factor
from hypothesis import given, settings
from hypothesis import strategies as st
from two_types import A, B, job, snapshot

from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, Node, ThroughputTable
from hopsd.model.plan import PlanSettings, PlanStatus, RoundInfo, Snapshot
from hopsd.policies.placing import Servers


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[GpuConfiguration], dict[GpuType, int]]:
    jobs = draw(st.integers(1, 8))
    capacity = {A: draw(st.integers(1, 12)), B: draw(st.integers(1, 12))}
    options = [
        GpuConfiguration(i, t, g, draw(st.floats(0.05, 1.0)) - LAMBDA)
        for i in range(jobs)
        for t in (A, B)
        for g in draw(st.sets(st.integers(1, 9), min_size=1, max_size=3))
    ]
    return options, capacity


def exhaustive(options: list[GpuConfiguration], capacity: dict[GpuType, int]) -> float:
    """The least cost over all choices of at most one option a job."""
    jobs = max(o.job for o in options) + 1

    @cache
    def best(i: int, a: int, b: int) -> float:
        if i == jobs:
            return 0.0
        least_cost = best(i + 1, a, b)
        for o in options:
            remainder = (a - o.gpus * (o.gpu_type == A), b - o.gpus * (o.gpu_type == B))
            if o.job == i and min(remainder) >= 0:
                least_cost = min(least_cost, o.cost + best(i + 1, *remainder))
        return least_cost

    return best(0, capacity[A], capacity[B])


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(programs())
def test_the_program_is_solved_to_its_optimum(
    case: tuple[list[GpuConfiguration], dict[GpuType, int]],
) -> None:
    options, capacity = case
    choice, gain, upper_bound = choose(options, capacity, time_limit_seconds=20.0)
    assert len({o.job for o in choice}) == len(choice)
    for gpu_type, gpus in capacity.items():
        assert sum(o.gpus for o in choice if o.gpu_type == gpu_type) <= gpus
    optimum = -exhaustive(options, capacity)
    assert gain == pytest.approx(-sum(o.cost for o in choice))
    assert gain == pytest.approx(optimum, rel=1e-4, abs=1e-9)
    assert optimum <= upper_bound + 1e-9
    assert upper_bound - gain <= 1e-4 * upper_bound + 1e-9


def test_rows_are_divided_by_their_smallest_entry() -> None:
    """Counts 1, 2 and 4 of a job that scales: gains 1, 2, 4, cost gain^-0.5 - 1.1."""
    case = snapshot(job("1", 1, 2, 4))
    options = Sia().options(case, Servers(case), case.jobs)
    assert [o.gpus for o in options] == [1, 2, 4]
    assert [o.cost for o in options] == pytest.approx([1 - 1.1, 2**-0.5 - 1.1, 0.5 - 1.1])


def test_rows_are_scaled_by_the_fewest_gpus_of_a_job() -> None:
    """Counts 2 and 4 gain 2 and 4, so that a job that needs more GPUs is not at a disadvantage."""
    case = snapshot(job("1", 2, 4))
    costs = [o.cost for o in Sia().options(case, Servers(case), case.jobs)]
    assert costs == pytest.approx([2**-0.5 - 1.1, 0.5 - 1.1])


def test_a_restarting_job_is_not_moved_again() -> None:
    """A job on 1 GPU takes 4 idle ones unless it is still in a restart of 50 s."""
    running = job(
        "1", 1, 4, running=Allocation.of({"n0": 1}), restarts=1, restart_seconds=50.0,
        running_since=900.0,
    )  # fmt: skip
    assert Sia()(snapshot(running, idle=(7, 8)), PlanSettings()).placements[JobId("1")].gpus == 4
    busy = replace(running, running_since=970.0)
    assert Sia()(snapshot(busy, idle=(7, 8)), PlanSettings()).placements == {busy.id: busy.running}


def test_the_restart_factor_matches_the_publication() -> None:
    """(T - N S) / (T + S): 1,000 s old, two restarts of 50 s."""
    running = job("1", 2, running=Allocation.of({"n0": 2}), restarts=2, restart_seconds=50.0)
    assert restart_factor(1000.0, running) == pytest.approx(900.0 / 1050.0)
    assert restart_factor(1000.0, replace(running, running=Allocation())) == 1.0
    assert restart_factor(40.0, running) == 1.0, "younger than a restart takes"


def test_a_running_job_pays_for_changes_only() -> None:
    running = job("1", 1, 2, running=Allocation.of({"n0": 2}), restart_seconds=50.0)
    case = snapshot(running, idle=(6, 8))
    stay = {o.gpus: o.cost + LAMBDA for o in Sia().options(case, Servers(case), case.jobs)}
    assert stay[2] == pytest.approx(2**-0.5)
    assert stay[1] == pytest.approx((1000.0 / 1050.0) ** -0.5)


def test_counts_are_those_of_the_publication_or_of_the_job() -> None:
    """Powers of two within a server and whole servers, or whatever the job accepts."""
    case = snapshot(job("1", 1, 3, 4, 6, 16), job("2", 3, 5))
    counts = [(o.job, o.gpus) for o in Sia().options(case, Servers(case), case.jobs)]
    assert counts == [(0, 1), (0, 4), (0, 16), (1, 3), (1, 5)]
    options_of_jobs = [
        (o.job, o.gpus) for o in Sia(own_sizes=True).options(case, Servers(case), case.jobs)
    ]
    assert options_of_jobs == [(0, 1), (0, 3), (0, 4), (0, 6), (0, 16), (1, 3), (1, 5)]


def test_servers_are_chosen_afterwards_and_may_be_missing() -> None:
    """6 + 6 + 4 GPUs are 16 by count; but the 4 that remain are in two halves."""
    case = snapshot(job("1", 6), job("2", 6), job("3", 4))
    plan = Sia(own_sizes=True)(case, PlanSettings())
    assert sorted(a.gpus for a in plan.placements.values()) == [6, 6]
    assert plan.fragments == 4


def test_a_plan_states_its_proven_bound() -> None:
    """Alone on 16 GPUs, counts 1, 2 and 4: the largest gains 1.1 - 4^-0.5."""
    plan = Sia()(snapshot(job("1", 1, 2, 4)), PlanSettings())
    assert plan.objective == pytest.approx(LAMBDA - 0.5)
    assert plan.upper_bound == pytest.approx(plan.objective)
    assert (plan.status, plan.gap) == (PlanStatus.WITHIN_GAP, pytest.approx(0.0))


def test_running_jobs_stay_in_place() -> None:
    running = job("1", 4, running=Allocation.of({"n1": 4}))
    plan = Sia()(snapshot(running, idle=(8, 4)), PlanSettings())
    assert plan.placements[JobId("1")] == Allocation.of({"n1": 4})


def test_later_plans_are_empty() -> None:
    assert Sia()(snapshot(job("1", 1), first=False), PlanSettings()).placements == {}


def test_a_job_none_of_whose_own_counts_fit_gets_another() -> None:
    """16 GPUs are a multiple of a server, but the cluster has only 8."""
    odd = Job(
        id=JobId("1"),
        user=UserName("u"),
        submit=0.0,
        wait_seconds=0.0,
        reqs=(5, 16),
        throughput={A: ThroughputTable({1: 1.0}, {2: 0.9})},
        samples=100.0,
    )
    server = Node(NodeName("a0"), A, 8, 8)
    plan = Sia()(Snapshot(0.0, RoundInfo(True, 360.0), (server,), (odd,)), PlanSettings())
    assert plan.placements == {odd.id: Allocation.of({"a0": 5})}

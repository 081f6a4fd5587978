"""Properties of every plan for any cluster and queue."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from instances import snapshot
from programs import assert_holds, program_of, usable

from hopsd.core.placement.program import Program
from hopsd.model.plan import PlanSettings, PlanStatus, RoundInfo, Snapshot
from hopsd.policies.hops.policy import plan
from hopsd.solver.bound.cuts import capacity_rows
from hopsd.solver.bound.dual_prices import prices_at
from hopsd.solver.exact import solve_exactly
from hopsd.solver.search.greedy import greedy_by_weight
from hopsd.solver.solve import solve

FEW_EXAMPLES = settings(max_examples=15, deadline=None)
SEEDS = st.integers(0, 10**6)


@pytest.mark.slow
@FEW_EXAMPLES
@given(SEEDS, st.booleans(), st.sampled_from([0.0, 3.0, 12.0]), st.sampled_from([0.0, 1.0, 50.0]))
def test_nothing_is_over_allocated_and_a_bound_is_given(
    seed: int, first: bool, decades: float, lam: float
) -> None:
    instance = snapshot(seed, servers=8, jobs=16, first=first, decades=decades)
    result = plan(instance, PlanSettings(lam=lam))
    assert_holds(instance, result)
    assert 0.0 <= result.gap < 1.0


@pytest.mark.slow
@FEW_EXAMPLES
@given(SEEDS, st.booleans())
@example(532385, False)  # a light job moves, and leaves GPUs to heavier ones that had none
def test_no_candidate_could_use_an_idle_gpu(seed: int, first: bool) -> None:
    program = program_of(snapshot(seed, servers=10, jobs=25, first=first))
    solution = solve(program, 0.05, 10.0)
    assert program.feasible(solution.choice)
    assert not usable(program, solution.choice)


@FEW_EXAMPLES
@given(SEEDS, st.lists(st.floats(0.0, 1e3), min_size=18, max_size=18))
def test_any_prices_prove_a_bound(seed: int, prices: list[float]) -> None:
    program = program_of(snapshot(seed, servers=6, jobs=5))
    best = solve_exactly(program)
    assume(best is not None)
    bound = prices_at(program, capacity_rows(program), np.array(prices)).bound
    assert bound >= program.scaled_objective(best) * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_the_large_method_agrees_with_the_exact_one(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small programs that the exact method is made to refuse are solved to within the gap."""
    program = program_of(snapshot(seed, servers=5, jobs=6))
    best = solve_exactly(program)
    assert best is not None
    monkeypatch.setattr("hopsd.solver.solve.solve_exactly", lambda _: None)
    solution = solve(program, 0.0, 20.0)
    optimum = program.scaled_objective(best)
    assert program.scaled_objective(solution.choice) >= optimum * (1 - 1e-6)
    assert optimum * (1 - 1e-9) <= solution.bound <= optimum * (1 + 1e-3)


@pytest.mark.parametrize("priorities", ["equal", "zero", "one zero", "one job fits nowhere"])
@pytest.mark.parametrize("lam", [0.0, 1.0, 2.0, 50.0])
def test_the_large_methods_value_and_bound_enclose_the_optimum(
    priorities: str, lam: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = snapshot(int(lam), servers=4, jobs=6, decades=12.0)
    jobs = list(instance.jobs)
    if priorities in ("equal", "zero"):
        jobs = [replace(job, priority=float(priorities == "equal")) for job in jobs]
    elif priorities == "one zero":
        jobs[0] = replace(jobs[0], priority=0.0)
    else:
        jobs[0] = replace(jobs[0], reqs=(5_000,))
    program = program_of(replace(instance, jobs=tuple(jobs)), lam)
    best = solve_exactly(program)
    assert best is not None
    monkeypatch.setattr("hopsd.solver.solve.solve_exactly", lambda _: None)
    solution = solve(program, 0.01, 60.0)
    value, optimum = program.scaled_objective(solution.choice), program.scaled_objective(best)
    assert value <= optimum * (1 + 1e-9)
    assert optimum <= solution.bound * (1 + 1e-9)
    assert solution.status is PlanStatus.OPTIMAL or value >= 0.99 * solution.bound


def _reverse_jobs(instance: Snapshot) -> Snapshot:
    return replace(instance, jobs=instance.jobs[::-1])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_same_input_gives_the_same_plan_in_any_order(seed: int) -> None:
    instance = snapshot(seed, servers=24, jobs=60)
    limits = PlanSettings(time_limit_seconds=60.0)
    first_plan, second_plan, reversed_plan = (
        plan(s, limits) for s in (instance, instance, _reverse_jobs(instance))
    )
    for later_plan in (second_plan, reversed_plan):
        assert later_plan.placements == first_plan.placements
        assert (later_plan.objective, later_plan.upper_bound) == (
            first_plan.objective,
            first_plan.upper_bound,
        )


@pytest.mark.parametrize("decades", [4.0, 12.0])
@pytest.mark.parametrize("seed", range(3))
def test_light_jobs_are_not_lost_in_the_gap(seed: int, decades: float) -> None:
    """In every band of weight, the plan is as good as a separate plan of those jobs."""
    instance = snapshot(seed, servers=16, jobs=60, decades=decades)
    program = program_of(instance)
    solution = solve(program, 0.01, 30.0)
    assert not usable(program, solution.choice)
    log_weight = program.log_weight()
    for threshold in np.log(10.0) * np.arange(3.0, decades, 3.0):
        _assert_band_is_good(program, solution.choice, log_weight < log_weight.max() - threshold)


def _assert_band_is_good(program: Program, choice: np.ndarray, light: np.ndarray) -> None:
    """Compare with the greedy plan of the band on the GPUs that heavier jobs leave."""
    heavy_only = np.where(light, -1, choice)
    free_capacity = program.capacity - program.usage(heavy_only)
    part = replace(program, capacity=free_capacity)
    rivals = greedy_by_weight(part)
    ours = np.where(light, choice, -1)
    rivals_only = np.where(light, rivals, -1)
    assert part.scaled_objective(ours) >= 0.98 * part.scaled_objective(rivals_only)


@pytest.mark.parametrize("seed", range(3))
def test_replanning_an_applied_plan_moves_nothing(seed: int) -> None:
    """With a restart cost, planning again after a plan was applied gives the same plan."""
    instance = snapshot(seed, servers=5, jobs=7)
    first_plan = plan(instance, PlanSettings(gap=0.0))
    idle = {node.name: node.idle for node in instance.nodes}
    jobs = []
    for job in instance.jobs:
        allocation = first_plan.placements.get(job.id)
        for name, gpus in allocation or ():
            idle[name] -= gpus
        jobs.append(replace(job, running=allocation, restart_seconds=60.0) if allocation else job)
    nodes = tuple(replace(node, idle=idle[node.name]) for node in instance.nodes)
    second_plan = plan(replace(instance, nodes=nodes, jobs=tuple(jobs)), PlanSettings(gap=0.0))
    assert first_plan.status is PlanStatus.OPTIMAL
    assert second_plan.placements == first_plan.placements


@pytest.mark.parametrize("turns", [0, None])
@pytest.mark.parametrize("seed", range(4))
def test_replanning_from_the_last_plan_stays_within_the_gap(
    seed: int, turns: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small programs are solved like large ones: with short rounds of prices, keeping jobs that
    hardly lose, and placing light jobs by prices.

    The result is compared with the exact optimum of the next round, in which a job has ended and
    priorities have changed.
    """
    monkeypatch.setattr("hopsd.solver.bound.dual_prices._MANY_COLUMNS", 0)
    monkeypatch.setattr("hopsd.solver.weight_classes.LARGE", 0)
    instance = _a_round_later(snapshot(seed, servers=5, jobs=7, decades=4.0 * (seed % 2)), seed)
    program = program_of(instance)
    present = program.configurations.present
    assert np.any(present >= 0)
    best = solve_exactly(program)
    assert best is not None
    optimum = program.scaled_objective(best)
    monkeypatch.setattr("hopsd.solver.solve.solve_exactly", lambda _: None)
    monkeypatch.setattr("hopsd.solver.weight_classes.solve_exactly", lambda _: None)
    solution = solve(program, 0.05, 60.0, turns=turns)
    value = program.scaled_objective(solution.choice)
    assert program.feasible(solution.choice)
    assert not usable(program, solution.choice)
    assert value <= optimum * (1 + 1e-9)
    assert optimum <= solution.bound * (1 + 1e-9)
    assert solution.status is PlanStatus.TIME_LIMIT or value >= 0.95 * solution.bound
    assert turns == 0 or solution.status is not PlanStatus.TIME_LIMIT


def _a_round_later(instance: Snapshot, seed: int) -> Snapshot:
    """Return the next round: jobs run as planned, one has ended, and priorities have changed."""
    rng = np.random.default_rng(seed)
    first_plan = plan(instance, PlanSettings())
    ended_job = sorted(first_plan.placements)[0]
    running = {
        job: allocation for job, allocation in first_plan.placements.items() if job != ended_job
    }
    idle = {node.name: node.idle for node in instance.nodes}
    for allocation in running.values():
        for name, gpus in allocation:
            idle[name] -= gpus
    return replace(
        instance,
        nodes=tuple(replace(node, idle=idle[node.name]) for node in instance.nodes),
        jobs=tuple(
            replace(
                job,
                running=running.get(job.id, job.running),
                priority=(job.priority or 1.0) * float(rng.choice([1.0, 1.0, 1.5])),
            )
            for job in instance.jobs
            if job.id != ended_job
        ),
    )


def test_a_later_plan_leaves_running_jobs_alone() -> None:
    instance = snapshot(0, servers=12, jobs=30)
    first_plan = plan(instance, PlanSettings())
    idle = {node.name: node.idle for node in instance.nodes}
    for allocation in first_plan.placements.values():
        for name, gpus in allocation:
            idle[name] -= gpus
    ended_job = next(iter(first_plan.placements))
    for name, gpus in first_plan.placements[ended_job]:
        idle[name] += gpus
    later = replace(
        instance,
        round=RoundInfo(first=False, seconds=900.0),
        nodes=tuple(replace(node, idle=idle[node.name]) for node in instance.nodes),
        jobs=tuple(
            replace(job, running=first_plan.placements[job.id])
            if job.id in first_plan.placements
            else job
            for job in instance.jobs
            if job.id != ended_job
        ),
    )
    second = plan(later, PlanSettings())
    assert_holds(later, second)
    assert not set(second.placements) & set(first_plan.placements)


@pytest.mark.slow
def test_spread_placements_fill_every_server_but_the_last() -> None:
    spread_count = 0
    for seed in range(8):
        instance = snapshot(seed, servers=12, jobs=20)
        idle = {node.name: node.idle for node in instance.nodes}
        order = [node.name for node in instance.nodes]
        for allocation in plan(instance, PlanSettings()).placements.values():
            if allocation.spread:
                spread_count += 1
                *full_parts, _ = sorted(allocation, key=lambda part: order.index(part[0]))
                assert all(gpus == idle[name] for name, gpus in full_parts)
    assert spread_count > 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_large_lambda_is_greedy_by_priority_at_scale(seed: int) -> None:
    """Weights differ by a factor of 3^50: no job loses gain for any number of lighter ones."""
    instance = snapshot(seed, servers=16, jobs=40)
    order = np.random.default_rng(seed).permutation(len(instance.jobs))
    jobs = [
        replace(job, priority=3.0 ** int(rank))
        for job, rank in zip(instance.jobs, order, strict=True)
    ]
    program = program_of(replace(instance, jobs=tuple(jobs)), lam=50.0)
    solution = solve(program, 0.01, 30.0)
    heaviest = program.by_weight()
    ours, greedy = (
        _gains(program, c)[heaviest] for c in (solution.choice, greedy_by_weight(program))
    )
    differ = np.flatnonzero(~np.isclose(ours, greedy))
    assert not len(differ) or ours[differ[0]] > greedy[differ[0]]


def _gains(program: Program, choice: np.ndarray) -> np.ndarray:
    return np.where(choice >= 0, program.gain(np.maximum(choice, 0)), 0.0)

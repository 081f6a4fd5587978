"""What holds for every plan, whatever the cluster and the queue."""

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

FEW = settings(max_examples=15, deadline=None)
SEEDS = st.integers(0, 10**6)


@FEW
@given(SEEDS, st.booleans(), st.sampled_from([0.0, 3.0, 12.0]), st.sampled_from([0.0, 1.0, 50.0]))
def test_never_over_allocated_and_always_a_bound(
    seed: int, first: bool, decades: float, lam: float
) -> None:
    asked = snapshot(seed, servers=8, jobs=16, first=first, decades=decades)
    made = plan(asked, PlanSettings(lam=lam))
    assert_holds(asked, made)
    assert 0.0 <= made.gap < 1.0


@FEW
@given(SEEDS, st.booleans())
@example(532385, False)  # a light job moves, and leaves GPUs to heavier ones that had none
def test_no_idle_gpu_that_a_candidate_could_use(seed: int, first: bool) -> None:
    program = program_of(snapshot(seed, servers=10, jobs=25, first=first))
    solution = solve(program, 0.05, 10.0)
    assert program.feasible(solution.choice)
    assert not usable(program, solution.choice)


@FEW
@given(SEEDS, st.lists(st.floats(0.0, 1e3), min_size=18, max_size=18))
def test_any_prices_prove_a_bound(seed: int, prices: list[float]) -> None:
    program = program_of(snapshot(seed, servers=6, jobs=5))
    best = solve_exactly(program)
    assume(best is not None)
    bound = prices_at(program, capacity_rows(program), np.array(prices)).bound
    assert bound >= program.scaled_objective(best) * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_the_large_way_meets_the_exact_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small programs, refused by the exact way: within the gap of the true optimum."""
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
def test_the_large_way_is_never_above_the_optimum_nor_its_bound_below(
    priorities: str, lam: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = snapshot(int(lam), servers=4, jobs=6, decades=12.0)
    jobs = list(asked.jobs)
    if priorities in ("equal", "zero"):
        jobs = [replace(job, priority=float(priorities == "equal")) for job in jobs]
    elif priorities == "one zero":
        jobs[0] = replace(jobs[0], priority=0.0)
    else:
        jobs[0] = replace(jobs[0], reqs=(5_000,))
    program = program_of(replace(asked, jobs=tuple(jobs)), lam)
    best = solve_exactly(program)
    assert best is not None
    monkeypatch.setattr("hopsd.solver.solve.solve_exactly", lambda _: None)
    solution = solve(program, 0.01, 60.0)
    value, optimum = program.scaled_objective(solution.choice), program.scaled_objective(best)
    assert value <= optimum * (1 + 1e-9)
    assert optimum <= solution.bound * (1 + 1e-9)
    assert solution.status is PlanStatus.OPTIMAL or value >= 0.99 * solution.bound


def _reversed(asked: Snapshot) -> Snapshot:
    return replace(asked, jobs=asked.jobs[::-1])


@pytest.mark.parametrize("seed", range(3))
def test_same_input_same_plan_in_any_order(seed: int) -> None:
    asked = snapshot(seed, servers=24, jobs=60)
    limits = PlanSettings(time_limit_seconds=60.0)
    one, again, other = (plan(s, limits) for s in (asked, asked, _reversed(asked)))
    for made in (again, other):
        assert made.placements == one.placements
        assert (made.objective, made.upper_bound) == (one.objective, one.upper_bound)


@pytest.mark.parametrize("decades", [4.0, 12.0])
@pytest.mark.parametrize("seed", range(3))
def test_light_jobs_are_not_lost_in_the_gap(seed: int, decades: float) -> None:
    """In every band of weight the plan is as good as the same jobs planned by themselves."""
    asked = snapshot(seed, servers=16, jobs=60, decades=decades)
    program = program_of(asked)
    solution = solve(program, 0.01, 30.0)
    assert not usable(program, solution.choice)
    log_weight = program.log_weight()
    for threshold in np.log(10.0) * np.arange(3.0, decades, 3.0):
        _assert_band_is_good(program, solution.choice, log_weight < log_weight.max() - threshold)


def _assert_band_is_good(program: Program, choice: np.ndarray, light: np.ndarray) -> None:
    """Against the greedy plan of the band on what the heavier jobs leave."""
    heavy_only = np.where(light, -1, choice)
    left = program.capacity - program.taken(heavy_only)
    part = replace(program, capacity=left)
    rivals = greedy_by_weight(part)
    ours = np.where(light, choice, -1)
    theirs = np.where(light, rivals, -1)
    assert part.scaled_objective(ours) >= 0.98 * part.scaled_objective(theirs)


@pytest.mark.parametrize("seed", range(3))
def test_applied_and_planned_again_nothing_moves(seed: int) -> None:
    """With a restart cost, a plan whose jobs run where it put them is its own best answer."""
    asked = snapshot(seed, servers=5, jobs=7)
    made = plan(asked, PlanSettings(gap=0.0))
    idle = {node.name: node.idle for node in asked.nodes}
    jobs = []
    for job in asked.jobs:
        held = made.placements.get(job.id)
        for name, gpus in held or ():
            idle[name] -= gpus
        jobs.append(replace(job, running=held, restart_seconds=60.0) if held else job)
    nodes = tuple(replace(node, idle=idle[node.name]) for node in asked.nodes)
    again = plan(replace(asked, nodes=nodes, jobs=tuple(jobs)), PlanSettings(gap=0.0))
    assert made.status is PlanStatus.OPTIMAL
    assert again.placements == made.placements


@pytest.mark.parametrize("turns", [0, None])
@pytest.mark.parametrize("seed", range(4))
def test_planned_again_from_the_last_plan_within_the_gap(
    seed: int, turns: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As large programs are: short rounds of prices, what hardly loses stays, light jobs by prices.

    Against the exact optimum of the next round, in which some jobs ended and others weigh more.
    """
    monkeypatch.setattr("hopsd.solver.bound.dual_prices._MANY_COLUMNS", 0)
    monkeypatch.setattr("hopsd.solver.weight_classes.LARGE", 0)
    asked = _a_round_later(snapshot(seed, servers=5, jobs=7, decades=4.0 * (seed % 2)), seed)
    program = program_of(asked)
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


def _a_round_later(asked: Snapshot, seed: int) -> Snapshot:
    """Where the plan put them, jobs run; one has ended, and priorities are others."""
    rng = np.random.default_rng(seed)
    made = plan(asked, PlanSettings())
    ended = sorted(made.placements)[0]
    running = {job: at for job, at in made.placements.items() if job != ended}
    idle = {node.name: node.idle for node in asked.nodes}
    for at in running.values():
        for name, gpus in at:
            idle[name] -= gpus
    return replace(
        asked,
        nodes=tuple(replace(node, idle=idle[node.name]) for node in asked.nodes),
        jobs=tuple(
            replace(
                job,
                running=running.get(job.id, job.running),
                priority=(job.priority or 1.0) * float(rng.choice([1.0, 1.0, 1.5])),
            )
            for job in asked.jobs
            if job.id != ended
        ),
    )


def test_a_later_plan_leaves_running_jobs_alone() -> None:
    asked = snapshot(0, servers=12, jobs=30)
    made = plan(asked, PlanSettings())
    idle = {node.name: node.idle for node in asked.nodes}
    for allocation in made.placements.values():
        for name, gpus in allocation:
            idle[name] -= gpus
    ended = next(iter(made.placements))
    for name, gpus in made.placements[ended]:
        idle[name] += gpus
    later = replace(
        asked,
        round=RoundInfo(first=False, seconds=900.0),
        nodes=tuple(replace(node, idle=idle[node.name]) for node in asked.nodes),
        jobs=tuple(
            replace(job, running=made.placements[job.id]) if job.id in made.placements else job
            for job in asked.jobs
            if job.id != ended
        ),
    )
    second = plan(later, PlanSettings())
    assert_holds(later, second)
    assert not set(second.placements) & set(made.placements)


def test_spread_placements_fill_every_server_but_the_last() -> None:
    found = 0
    for seed in range(8):
        asked = snapshot(seed, servers=12, jobs=20)
        idle = {node.name: node.idle for node in asked.nodes}
        order = [node.name for node in asked.nodes]
        for allocation in plan(asked, PlanSettings()).placements.values():
            if allocation.spread:
                found += 1
                *filled, _ = sorted(allocation, key=lambda part: order.index(part[0]))
                assert all(gpus == idle[name] for name, gpus in filled)
    assert found > 5


@pytest.mark.parametrize("seed", range(3))
def test_a_large_lambda_is_greedy_by_priority_at_scale(seed: int) -> None:
    """Weights a factor 3^50 apart: no job loses gain for any number of lighter ones."""
    asked = snapshot(seed, servers=16, jobs=40)
    order = np.random.default_rng(seed).permutation(len(asked.jobs))
    jobs = [
        replace(job, priority=3.0 ** int(rank)) for job, rank in zip(asked.jobs, order, strict=True)
    ]
    program = program_of(replace(asked, jobs=tuple(jobs)), lam=50.0)
    solution = solve(program, 0.01, 30.0)
    heaviest = program.by_weight()
    ours, greedy = (
        _gains(program, c)[heaviest] for c in (solution.choice, greedy_by_weight(program))
    )
    differ = np.flatnonzero(~np.isclose(ours, greedy))
    assert not len(differ) or ours[differ[0]] > greedy[differ[0]]


def _gains(program: Program, choice: np.ndarray) -> np.ndarray:
    return np.where(choice >= 0, program.gain(np.maximum(choice, 0)), 0.0)

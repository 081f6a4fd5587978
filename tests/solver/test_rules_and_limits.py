"""Programs with rules and limits, too large for the exact search: feasible, and the bound holds."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from instances import snapshot, with_rules
from programs import best_value, program_of, usable

from bench.plan import instances as bench
from hopsd.core.queue.competing import ledger_of
from hopsd.model.plan import PlanSettings
from hopsd.policies.hops.policy import plan
from hopsd.solver import large
from hopsd.solver import solve as solving
from hopsd.solver.backend.checked_solver import CheckedSolver
from hopsd.solver.backend.integer_program import Answer
from hopsd.solver.bound.column_groups import column_groups
from hopsd.solver.bound.dual_prices import find_prices
from hopsd.solver.large import Task
from hopsd.solver.search.greedy import greedy_by_prices, greedy_by_weight
from hopsd.solver.solve import solve
from hopsd.solver.tighten import Tightening, TightenResult


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_the_plan_is_within_its_gap_and_its_bound_holds(
    seed: int, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solving, "solve_exactly", lambda program: None)
    program = program_of(with_rules(snapshot(seed, servers=8, jobs=20, first=first), seed))
    solution = solve(program, 0.01, 60.0)
    best, value = best_value(program), program.scaled_objective(solution.choice)
    assert program.feasible(solution.choice)
    assert value <= best * (1 + 1e-6)
    assert solution.bound >= best * (1 - 1e-5)
    assert value >= 0.99 * best * (1 - 1e-5)
    assert usable(program, solution.choice) == []


@pytest.mark.parametrize("seed", range(4))
def test_a_ledger_of_its_own_finds_nothing_wrong(seed: int) -> None:
    instance = with_rules(snapshot(seed, servers=16, jobs=60), seed)
    result = plan(instance, PlanSettings(time_limit_seconds=20.0))
    ledger = ledger_of(instance)
    jobs = {job.id: job for job in instance.jobs}
    for job, allocation in result.placements.items():
        assert ledger.may(jobs[job], allocation)
        ledger.take(jobs[job], allocation)
    assert result.placements
    assert result.objective <= result.upper_bound


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_passes_gain_where_cores_and_memory_are_short(seed: int) -> None:
    """All fragments in one group were more than CBC could improve on."""
    case, noise, demands = bench.Case.FRAGMENTED, bench.Noise.PAIR, bench.Demands.SITE
    program = program_of(bench.snapshot(512, case, noise, seed, demands=demands))
    value = program.scaled_objective
    by_weight = value(greedy_by_weight(program))
    prices = find_prices(program, column_groups(program), by_weight, inf)
    solution = solve(program, 0.01, 300.0, turns=0)
    assert value(solution.choice) > 1.01 * value(greedy_by_prices(program, prices))


@pytest.mark.slow
def test_idle_servers_short_of_gpus_alone_need_no_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """They cost 2,048 GPUs twice the time that passes over the class plan take."""

    def fail(*_: object) -> None:
        raise AssertionError("cuts")

    monkeypatch.setattr(large, "tighten", fail)
    monkeypatch.setattr(large, "Tightening", fail)
    case, noise = bench.Case.IDLE, bench.Noise.PAIR
    program = program_of(bench.snapshot(512, case, noise, 0))
    solution = solve(program, 0.01, 300.0)
    assert program.scaled_objective(solution.choice) >= 0.99 * solution.bound


def test_of_cuts_beside_a_start_no_round_counts_after_the_gap_is_met(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many of them are known by then: the plan does not depend on who is faster."""
    program = program_of(with_rules(snapshot(0, servers=16, jobs=40), 0))
    parts = column_groups(program)
    prices = find_prices(program, parts, program.scaled_objective(greedy_by_weight(program)), inf)
    choice = greedy_by_prices(program, prices)
    value = program.scaled_objective(choice)
    prices_by_round = [replace(prices, bound=value / share) for share in (0.97, 0.98, 0.995, 0.999)]

    monkeypatch.setattr(Tightening, "rounds", lambda *_: map(TightenResult, prices_by_round))
    task = Task(0.01, inf, CheckedSolver(lambda *_: Answer()))
    tightening = large._start_and_cuts(
        lambda *_: TightenResult(prices, choice), None, program, parts, prices, value, task
    )
    assert tightening.prices.bound == prices_by_round[2].bound
    assert tightening.choice is choice

"""Programs with rules and limits that are too large for the exact search: feasible and bounded."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest
from instances import snapshot, with_rules
from programs import best_value, program_of, usable

from bench.plan import instances as bench
from hopsd.core.placement.program import Program
from hopsd.core.queue.competing import ledger_of
from hopsd.model.arrays import Ints
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
def test_an_independent_ledger_finds_no_violation(seed: int) -> None:
    instance = with_rules(snapshot(seed, servers=16, jobs=60), seed)
    result = plan(instance, PlanSettings(time_limit_seconds=20.0))
    ledger = ledger_of(instance)
    jobs = {job.id: job for job in instance.jobs}
    for job, allocation in result.placements.items():
        assert ledger.may(jobs[job], allocation)
        ledger.take(jobs[job], allocation)
    assert result.placements
    assert result.objective <= result.upper_bound


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_passes_gain_if_cores_and_memory_are_scarce(seed: int) -> None:
    """Regression: all fragments in one group were too many for CBC to improve the plan."""
    case, noise, demands = bench.Case.FRAGMENTED, bench.Noise.PAIR, bench.Demands.SITE
    program = program_of(bench.snapshot(512, case, noise, seed, demands=demands))
    value = program.scaled_objective
    by_weight = value(greedy_by_weight(program))
    prices = find_prices(program, column_groups(program), by_weight, inf)
    solution = solve(program, 0.01, 300.0, turns=0)
    assert value(solution.choice) > 1.01 * value(greedy_by_prices(program, prices))


@pytest.mark.slow
def test_idle_servers_short_of_gpus_only_need_no_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 2,048 GPUs, cuts take twice as long as passes over the class plan."""

    def fail(*_: object) -> None:
        raise AssertionError("cuts")

    monkeypatch.setattr(large, "tighten", fail)
    monkeypatch.setattr(large, "Tightening", fail)
    case, noise = bench.Case.IDLE, bench.Noise.PAIR
    program = program_of(bench.snapshot(512, case, noise, 0))
    solution = solve(program, 0.01, 300.0)
    assert program.scaled_objective(solution.choice) >= 0.99 * solution.bound


def test_rounds_of_cuts_after_the_gap_is_met_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More rounds may be known by then, but the plan must not depend on which thread is faster."""
    program = program_of(with_rules(snapshot(0, servers=16, jobs=40), 0))
    parts = column_groups(program)
    prices = find_prices(program, parts, program.scaled_objective(greedy_by_weight(program)), inf)
    choice = greedy_by_prices(program, prices)
    value = program.scaled_objective(choice)
    prices_by_round = [replace(prices, bound=value / share) for share in (0.97, 0.98, 0.995, 0.999)]

    monkeypatch.setattr(Tightening, "rounds", lambda *_: map(TightenResult, prices_by_round))
    task = Task(0.01, inf, CheckedSolver(lambda *_: Answer()))
    tightening = large._start_and_cuts(
        lambda *_: TightenResult(prices, choice), None, program, parts, prices, choice, task
    )
    assert tightening.prices.bound == prices_by_round[2].bound
    assert tightening.choice is choice


@pytest.mark.slow
def test_a_choice_of_sufficient_worth_ends_the_search() -> None:
    """Its distance to the bound by prices does not matter."""
    calls = []

    def count(*question: object) -> Answer:
        calls.append(question)
        return Answer()

    program = program_of(with_rules(snapshot(0, servers=16, jobs=40), 0))
    enough = program.scaled_objective(greedy_by_weight(program))
    solution = solve(program, 0.0, 300.0, solver=count, enough=enough)
    assert enough <= program.scaled_objective(solution.choice) < solution.bound
    assert not calls
    solve(program, 0.0, 5.0, solver=count)
    assert calls


@pytest.mark.parametrize(("enough", "breadths"), [(1.005, [1, 2]), (1.02, []), (inf, [])])
def test_passes_continue_beside_cuts_while_only_the_plan_is_missing(
    monkeypatch: pytest.MonkeyPatch, enough: float, breadths: list[int]
) -> None:
    """A pass follows each round, with larger groups after one without gain. ``enough`` is the
    required multiple of the value.
    """
    program = program_of(with_rules(snapshot(0, servers=16, jobs=40), 0))
    prices = find_prices(program, column_groups(program), 1.0, inf)
    choice, passes = greedy_by_weight(program), []

    def improve(_program: Program, choice: Ints, *rest: Any) -> Ints:
        passes.append(rest[-1].breadth)
        return choice

    monkeypatch.setattr(large, "improve", improve)
    monkeypatch.setattr(Tightening, "rounds", lambda *_: map(TightenResult, [prices] * 5))
    required_worth = enough * program.scaled_objective(choice)
    task = Task(0.01, inf, CheckedSolver(lambda *_: Answer()), enough=required_worth)
    parts = column_groups(program)
    large._start_and_cuts(
        lambda *_: TightenResult(prices), None, program, parts, prices, choice, task
    )
    assert passes == breadths

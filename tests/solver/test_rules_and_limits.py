"""Programs with rules and limits, too large for the exact search: feasible, and the bound holds."""

from __future__ import annotations

from math import inf

import pytest
from instances import ruled, snapshot
from programs import best_value, program_of, usable

from bench.plan import instances as bench
from hopsd.core.queue.competing import ledger_of
from hopsd.model.plan import PlanSettings
from hopsd.policies.hops.policy import plan
from hopsd.solver import large
from hopsd.solver import solve as solving
from hopsd.solver.bound.column_groups import column_groups
from hopsd.solver.bound.dual_prices import find_prices
from hopsd.solver.search.greedy import greedy_by_prices, greedy_by_weight
from hopsd.solver.solve import solve


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_the_plan_is_within_its_gap_and_its_bound_holds(
    seed: int, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solving, "solve_exactly", lambda program: None)
    program = program_of(ruled(snapshot(seed, servers=8, jobs=20, first=first), seed))
    solution = solve(program, 0.01, 60.0)
    best, got = best_value(program), program.scaled_objective(solution.choice)
    assert program.feasible(solution.choice)
    assert got <= best * (1 + 1e-6)
    assert solution.bound >= best * (1 - 1e-5)
    assert got >= 0.99 * best * (1 - 1e-5)
    assert usable(program, solution.choice) == []


@pytest.mark.parametrize("seed", range(4))
def test_a_ledger_of_its_own_finds_nothing_wrong(seed: int) -> None:
    asked = ruled(snapshot(seed, servers=16, jobs=60), seed)
    made = plan(asked, PlanSettings(time_limit_seconds=20.0))
    ledger = ledger_of(asked)
    jobs = {job.id: job for job in asked.jobs}
    for job, allocation in made.placements.items():
        assert ledger.may(jobs[job], allocation)
        ledger.take(jobs[job], allocation)
    assert made.placements
    assert made.objective <= made.upper_bound


@pytest.mark.parametrize("seed", [0, 1])
def test_passes_gain_where_cores_and_memory_are_short(seed: int) -> None:
    """All fragments in one group were more than CBC could improve on."""
    case, noise, demands = bench.Case.FRAGMENTED, bench.Noise.PAIR, bench.Demands.SITE
    program = program_of(bench.snapshot(512, case, noise, seed, demands=demands))
    value = program.scaled_objective
    by_weight = value(greedy_by_weight(program))
    prices = find_prices(program, column_groups(program), by_weight, inf)
    made = solve(program, 0.01, 300.0, turns=0)
    assert value(made.choice) > 1.01 * value(greedy_by_prices(program, prices))


def test_idle_servers_short_of_gpus_alone_need_no_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """They cost 2,048 GPUs twice the time that passes over the class plan take."""

    def unwanted(*_: object) -> None:
        raise AssertionError("cuts")

    monkeypatch.setattr(large, "tighten", unwanted)
    case, noise = bench.Case.IDLE, bench.Noise.PAIR
    program = program_of(bench.snapshot(512, case, noise, 0))
    made = solve(program, 0.01, 300.0)
    assert program.scaled_objective(made.choice) >= 0.99 * made.bound

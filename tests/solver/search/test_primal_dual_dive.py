"""A dive's plans are feasible, leave no GPU idle that a job could use, and are near the best."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from instances import snapshot, with_rules
from programs import best_value, program_of, usable

from bench.plan import instances as bench
from hopsd.core.placement.program import Program, drop_oversized
from hopsd.model.arrays import Ints
from hopsd.solver import tighten
from hopsd.solver.bound.column_groups import column_groups
from hopsd.solver.bound.dual_prices import find_prices
from hopsd.solver.search.greedy import greedy_by_weight
from hopsd.solver.tighten import PrimalDual, find_cuts


def dive_once(
    program: Program, give_up: float = inf, rng: np.random.Generator | None = None
) -> Ints:
    floor = program.scaled_objective(greedy_by_weight(program))
    relaxation = PrimalDual(program, find_prices(program, column_groups(program), floor, inf))
    relaxation.go_on(inf)
    return relaxation.dive_by_steps(give_up, rng)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_a_dive_comes_close_to_the_optimum(seed: int) -> None:
    """The programs have shapes, limits, cores and memory."""
    program = program_of(with_rules(snapshot(seed, servers=8, jobs=20), seed))
    best = best_value(program)
    for rng in None, np.random.default_rng(seed):
        choice = dive_once(program, rng=rng)
        assert program.feasible(choice)
        assert not usable(program, choice)
        assert 0.85 * best <= program.scaled_objective(choice) <= best * (1 + 1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_the_best_dive_of_all_rounds_is_within_its_bound(seed: int) -> None:
    program = program_of(
        with_rules(snapshot(seed + 50, servers=10, jobs=25, first=seed % 2 == 0), seed)
    )
    floor = program.scaled_objective(greedy_by_weight(program))
    prices = find_prices(program, column_groups(program), floor, inf)
    result = find_cuts(program, prices, floor, 0.0, inf)
    best = best_value(program)
    value = floor if result.choice is None else program.scaled_objective(result.choice)
    assert 0.97 * best <= value <= best * (1 + 1e-6)
    assert best * (1 - 1e-6) <= result.prices.bound <= prices.bound


@pytest.mark.long
def test_2048_fragmented_gpus_with_scarce_cores_and_memory_are_proven_to_99_percent() -> None:
    """Descents of the dual alone stopped at 98.7 %."""
    case, noise, demands = bench.Case.FRAGMENTED, bench.Noise.PAIR, bench.Demands.SITE
    program = program_of(bench.snapshot(2048, case, noise, 0, demands=demands))
    floor = program.scaled_objective(greedy_by_weight(program))
    prices = find_prices(program, column_groups(program), floor, inf)
    result = find_cuts(program, prices, floor, 0.01, inf)
    assert result.choice is not None
    assert program.feasible(result.choice)
    assert program.scaled_objective(result.choice) >= 0.99 * result.prices.bound


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_cuts_in_what_a_dive_leaves_make_plans_better(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the mean of three dives at the same prices, by 0.1 to 0.2 % of the bound."""
    case, noise, demands = bench.Case.IDLE, bench.Noise.PAIR, bench.Demands.SITE
    program = drop_oversized(program_of(bench.snapshot(128, case, noise, seed, demands=demands)))[0]
    floor = program.scaled_objective(greedy_by_weight(program))
    relaxation = PrimalDual(program, find_prices(program, column_groups(program), floor, inf))
    for _ in range(2):
        relaxation.go_on(inf)
        relaxation.cut(inf)
    relaxation.go_on(inf)

    def mean_of_dives() -> float:
        random = (None, *map(np.random.default_rng, (1, 2)))
        choices = [relaxation.dive_by_steps(inf, rng) for rng in random]
        assert all(map(program.feasible, choices))
        return float(np.mean([program.scaled_objective(choice) for choice in choices]))

    with_cuts = mean_of_dives()
    monkeypatch.setattr(tighten, "_DIVE_SHARE", inf)
    assert with_cuts > mean_of_dives()


def test_a_late_dive_equals_filling_idle_gpus() -> None:
    program = program_of(with_rules(snapshot(1), 1))
    choice = dive_once(program, give_up=0.0)
    assert program.feasible(choice)
    assert not usable(program, choice)


@pytest.mark.slow
def test_dives_are_reproducible_by_seed() -> None:
    program = program_of(with_rules(snapshot(3), 3))
    first, repeat, other_seed = (
        dive_once(program, rng=np.random.default_rng(n)) for n in (5, 5, 6)
    )
    assert np.array_equal(first, repeat)
    assert program.feasible(other_seed)

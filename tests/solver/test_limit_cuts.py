"""Cuts of limits hold for every plan, leave nothing to lift, and lower the bound."""

from __future__ import annotations

from itertools import product
from math import inf

import numpy as np
import pytest
from programs import best_value, program_of

from bench.plan import instances as bench
from hopsd.core.placement.program import Program, drop_oversized
from hopsd.model.arrays import Floats, Ints
from hopsd.solver.bound.column_groups import column_groups
from hopsd.solver.bound.dual_prices import Prices, find_prices
from hopsd.solver.limit_cuts import LimitCutFinder, lift
from hopsd.solver.search.greedy import greedy_by_weight
from hopsd.solver.tighten import find_cuts


def prices_of(program: Program) -> Prices:
    floor = program.scaled_objective(greedy_by_weight(program))
    return find_prices(program, column_groups(program), floor, inf)


def site(gpus: int, seed: int) -> Program:
    case, noise = bench.Case.IDLE, bench.Noise.PAIR
    program = program_of(bench.snapshot(gpus, case, noise, seed, demands=bench.Demands.SITE))
    return drop_oversized(program)[0]


def patterns(job: Ints, amount: Ints, capacity: int) -> Ints:
    """At most one share for each job within the capacity: (patterns, shares) of 0 and 1."""
    options = [[-1, *np.flatnonzero(job == number).tolist()] for number in np.unique(job).tolist()]
    rows = []
    for shares in product(*options):
        row = np.zeros(len(job) + 1, dtype=np.int64)
        row[list(shares)] = 1
        if row[:-1] @ amount <= capacity:
            rows.append(row[:-1])
    return np.array(rows)


@pytest.mark.parametrize("seed", range(20))
def test_no_pattern_is_worth_more_than_1_and_no_share_could_be_worth_more(seed: int) -> None:
    rng = np.random.default_rng(seed)
    job = np.repeat(np.arange(5), rng.integers(1, 4, 5))
    amount, capacity = rng.integers(1, 9, len(job)), 12
    whole = patterns(job, amount, capacity)
    value: Floats = rng.random(len(job)) * (rng.random(len(job)) < 0.6)
    value /= max(1.0, float((whole @ value).max()))
    lifted = lift(value, job, amount, capacity)
    worth = whole @ lifted
    assert np.all(lifted >= value - 1e-12)
    assert worth.max() <= 1 + 1e-12
    for share in range(len(job)):
        assert worth[whole[:, share] == 1].max() >= 1 - 1e-12


@pytest.mark.parametrize("seed", range(6))
def test_every_choice_keeps_every_cut(seed: int) -> None:
    program, rng = site(128, seed), np.random.default_rng(seed)
    finder, columns = LimitCutFinder(program), np.arange(len(program.value))
    found = 0
    for _ in range(5):
        x = rng.random(len(columns))
        cuts = finder.find(columns, x)
        found += len(cuts)
        for cut in cuts:
            assert cut.factors @ x[cut.columns] > 1
            factor = np.zeros(len(columns))
            factor[cut.columns] = cut.factors
            for _ in range(20):
                choice = np.full(program.configurations.jobs, -1)
                for number in rng.permutation(program.configurations.jobs).tolist():
                    start = program.configurations.start
                    if start[number] < start[number + 1]:
                        choice[number] = rng.integers(start[number], start[number + 1])
                        if not program.feasible(choice):
                            choice[number] = -1
                assert factor[choice[choice >= 0]].sum() <= 1 + 1e-9
    assert found


@pytest.mark.parametrize("seed", range(4))
def test_no_plan_is_worth_more_than_the_bound(seed: int) -> None:
    program = site(48, seed)
    prices = prices_of(program)
    bound = find_cuts(program, prices, 0.0, 0.0, inf).prices.bound
    assert best_value(program) * (1 - 1e-6) <= bound <= prices.bound


def test_fractions_of_jobs_that_exclude_one_another_in_a_limit_are_cut_off() -> None:
    """From 336.6 without them, of an optimum of 327.9 at least."""
    program = site(128, 1)
    assert find_cuts(program, prices_of(program), 327.8, 0.01, inf).prices.bound < 332.0

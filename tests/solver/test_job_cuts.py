"""Cuts of jobs in limits and servers hold for every plan, and lower the bound."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import inf

import numpy as np
import pytest
from programs import best_value, program_of

from bench.plan import instances as bench
from hopsd.core.placement.program import Program, drop_oversized
from hopsd.model.arrays import Floats, Ints
from hopsd.solver import tighten
from hopsd.solver.bound.column_groups import column_groups
from hopsd.solver.bound.dual_prices import Prices, find_prices
from hopsd.solver.job_cuts import JobCutFinder, levels_of, lift
from hopsd.solver.search.greedy import greedy_by_weight


def prices_of(program: Program) -> Prices:
    floor = program.scaled_objective(greedy_by_weight(program))
    return find_prices(program, column_groups(program), floor, inf)


def site(gpus: int, seed: int) -> Program:
    case, noise = bench.Case.IDLE, bench.Noise.PAIR
    program = program_of(bench.snapshot(gpus, case, noise, seed, demands=bench.Demands.SITE))
    return drop_oversized(program)[0]


def patterns(job: Ints, amount: Ints, capacity: Ints) -> Ints:
    """At most one share for each job within the capacity: (patterns, shares) of 0 and 1."""
    options = [[-1, *np.flatnonzero(job == number).tolist()] for number in np.unique(job).tolist()]
    rows = []
    for shares in product(*options):
        row = np.zeros(len(job) + 1, dtype=np.int64)
        row[list(shares)] = 1
        if np.all(row[:-1] @ amount <= capacity):
            rows.append(row[:-1])
    return np.array(rows)


@pytest.mark.parametrize("resources", [1, 3])
@pytest.mark.parametrize("seed", range(20))
def test_no_pattern_is_worth_more_than_1_and_no_share_could_be_worth_more(
    seed: int, resources: int
) -> None:
    rng = np.random.default_rng(seed)
    job = np.repeat(np.arange(5), rng.integers(1, 4, 5))
    amount, capacity = rng.integers(1, 9, (len(job), resources)), np.full(resources, 12)
    whole = patterns(job, amount, capacity)
    value: Floats = rng.random(len(job)) * (rng.random(len(job)) < 0.6)
    value /= max(1.0, float((whole @ value).max()))
    lifted = lift(value, job, amount, capacity, rng.random(len(job)))
    worth = whole @ lifted
    assert np.all(lifted >= value)
    assert worth.max() <= 1 + 1e-12
    for share in range(len(job)):
        assert worth[whole[:, share] == 1].max() >= 1 - 1e-8


@pytest.mark.parametrize("seed", range(10))
def test_what_fits_also_fits_in_levels(seed: int) -> None:
    rng = np.random.default_rng(seed)
    capacity = rng.integers(1, [17, 2_000, 600_000_000_000])
    amount = rng.integers(0, capacity + 1, (6, 3))
    level, levels = levels_of(amount, capacity)
    assert np.prod(levels + 1) <= 10_001
    for row in patterns(np.arange(6), amount, capacity):
        assert np.all(row @ level <= levels)


def test_levels_are_exact_if_there_are_few() -> None:
    amount = np.array([[2, 0, 30_000], [4, 0, 60_000]])
    level, levels = levels_of(amount, np.array([9, 5, 100_000]))
    assert level.tolist() == [[1, 0, 1], [2, 0, 2]]
    assert levels.tolist() == [4, 0, 3]


def feasible_choice(program: Program, rng: np.random.Generator) -> Ints:
    """Return a choice of random columns in random order."""
    choice, start = np.full(program.configurations.jobs, -1), program.configurations.start
    for number in rng.permutation(program.configurations.jobs).tolist():
        if start[number] < start[number + 1]:
            choice[number] = rng.integers(start[number], start[number + 1])
            if not program.feasible(choice):
                choice[number] = -1
    return choice


@pytest.mark.slow
@pytest.mark.parametrize("of", [JobCutFinder.of_limits, JobCutFinder.of_servers])
@pytest.mark.parametrize("seed", range(6))
def test_every_choice_keeps_every_cut(seed: int, of: Callable[[Program], JobCutFinder]) -> None:
    program, rng = site(128, seed), np.random.default_rng(seed)
    finder, columns = of(program), np.arange(len(program.value))
    choices = [feasible_choice(program, rng) for _ in range(30)]
    found = 0
    for _ in range(5):
        x = rng.random(len(columns)) * (rng.random(len(columns)) < 0.3)
        cuts = finder.find(columns, x)
        found += len(cuts)
        for cut in cuts:
            assert cut.factors @ x[cut.columns] > 1
            factor = np.zeros(len(columns))
            factor[cut.columns] = cut.factors
            for choice in choices:
                assert factor[choice[choice >= 0]].sum() <= 1 + 1e-9
    assert found


@pytest.mark.slow
def test_a_server_does_not_take_the_same_job_twice() -> None:
    """Two halves of a server by one job count as one in its cuts, as in no cut of kinds."""
    program = site(128, 0)
    finder, columns = JobCutFinder.of_servers(program), np.arange(len(program.value))
    job = program.configurations.job_of_column()
    for number in range(program.configurations.jobs):
        for cut in finder.find(columns, np.where(job == number, 2.0, 0.0)):
            assert cut.factors[job[cut.columns] == number].max() == pytest.approx(1.0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_no_plan_is_worth_more_than_the_bound(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tighten, "_SLOW_BY_KINDS", inf)  # cuts of jobs from the start
    program = site(48, seed)
    prices = prices_of(program)
    bound = tighten.find_cuts(program, prices, 0.0, 0.0, inf).prices.bound
    assert best_value(program) * (1 - 1e-6) <= bound <= prices.bound


@pytest.mark.slow
def test_fractions_of_jobs_that_exclude_one_another_in_a_limit_are_cut_off() -> None:
    """From 336.6 without them, of an optimum of 327.9 at least."""
    program = site(128, 1)
    assert tighten.find_cuts(program, prices_of(program), 327.8, 0.01, inf).prices.bound < 332.0


@pytest.mark.slow
def test_fractions_of_jobs_that_exclude_one_another_on_a_server_are_cut_off() -> None:
    """From 330.5 with cuts of kinds alone, of an optimum of 327.9 at least."""
    program = site(128, 1)
    assert tighten.find_cuts(program, prices_of(program), 327.8, 0.0, inf).prices.bound < 329.0

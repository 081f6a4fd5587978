"""Cuts of servers short of cores or memory are valid for every plan and lower the bound."""

from __future__ import annotations

import sys
from itertools import product
from math import inf
from time import monotonic
from typing import Any

import numpy as np
import pytest
from instances import snapshot, with_rules
from programs import best_value, program_of

from bench.plan import instances as bench
from hopsd.core.placement.program import Program
from hopsd.errors import SolverError
from hopsd.solver import tighten as tighten_module
from hopsd.solver.backend.simplex import Simplex
from hopsd.solver.bound.column_groups import column_groups
from hopsd.solver.bound.dual_prices import Prices, find_prices
from hopsd.solver.bound.knapsack_cuts import ServerParts, are_full, factors, patterns
from hopsd.solver.search.greedy import greedy_by_weight
from hopsd.solver.tighten import find_cuts, tighten


def prices_of(program: Program) -> Prices:
    floor = program.scaled_objective(greedy_by_weight(program))
    return find_prices(program, column_groups(program), floor, inf)


def fragments(gpus: int, demands: bench.Demands = bench.Demands.SITE) -> Program:
    case, noise = bench.Case.FRAGMENTED, bench.Noise.PAIR
    return program_of(bench.snapshot(gpus, case, noise, 0, demands=demands))


@pytest.mark.parametrize("seed", range(10))
def test_every_choice_of_whole_kinds_satisfies_a_cut(seed: int) -> None:
    rng = np.random.default_rng(seed)
    capacity = np.array([6, 30, 40])
    weight = np.stack(
        [rng.integers(1, 5, 6), rng.integers(0, 20, 6), rng.integers(0, 30, 6)], axis=1
    )
    valued_items = rng.choice(6, 3, replace=False)
    pattern_set = patterns(weight[valued_items], capacity, 1000)
    assert pattern_set is not None
    values = pattern_set @ rng.uniform(0, 1, 3)
    factor = factors(values, pattern_set @ weight[valued_items], weight)
    all_choices = np.indices((7,) * 6).reshape(6, -1).T
    whole = all_choices[(all_choices @ weight <= capacity).all(axis=1)]
    assert len(whole) > 1
    assert (whole @ factor).max() <= values.max() + 1e-9


def test_patterns_list_each_choice_within_the_capacity_once() -> None:
    weight, capacity = np.array([[1, 4], [2, 1], [3, 0]]), np.array([5, 9])
    pattern_set = patterns(weight, capacity, 1000)
    assert pattern_set is not None
    expected = [
        counts
        for counts in product(range(6), repeat=3)
        if (np.array(counts) @ weight <= capacity).all()
    ]
    assert sorted(map(tuple, pattern_set.tolist())) == expected
    assert patterns(weight, capacity, len(expected) - 1) is None
    room_for_more = [
        any(((counts + kind) @ weight <= capacity).all() for kind in np.eye(3, dtype=np.int64))
        for counts in pattern_set
    ]
    assert (
        are_full(pattern_set, weight, capacity).tolist() == np.logical_not(room_for_more).tolist()
    )


def test_parts_contain_the_usage_of_items() -> None:
    program = fragments(128)
    parts = ServerParts.from_program(program)
    demands, server = program.configurations.demands, program.configurations.server
    for item in range(len(demands)):
        entries = parts.part[parts.item == item]
        server_demands = [
            (row, amount) for row, amount in demands.amounts_of(item) if server[row] >= 0
        ]
        assert set(parts.server[entries]) == {server[row] for row, _ in server_demands}
        assert parts.weight[parts.kind[entries]].sum() == sum(
            amount for _, amount in server_demands
        )


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_no_plan_is_worth_more_than_the_bound(seed: int, first: bool) -> None:
    program = program_of(with_rules(snapshot(seed, servers=8, jobs=20, first=first), seed))
    prices = prices_of(program)
    cut_prices = find_cuts(program, prices, 0.0, 0.0, inf).prices
    assert cut_prices.bound <= prices.bound
    assert cut_prices.bound >= best_value(program) * (1 - 1e-6)


@pytest.mark.slow
def test_cuts_lower_the_bound_if_memory_and_cores_are_scarce() -> None:
    """The bound falls from 690.9 to 678.7."""
    program = fragments(128)
    prices = prices_of(program)
    cut_prices = tighten(program, prices, 0.0, 0.0, monotonic() + 300.0).prices
    assert cut_prices.bound < 0.985 * prices.bound


def test_without_an_answer_the_prices_are_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    program = fragments(128)
    prices = prices_of(program)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    for remaining_seconds in 60.0, -1.0:
        tightened_result = tighten(program, prices, 0.0, 0.0, monotonic() + remaining_seconds)
        assert tightened_result.prices is prices
        assert tightened_result.choice is None


@pytest.mark.parametrize("programs", range(2, 9))
def test_cuts_found_before_the_solver_gave_up_are_kept(
    monkeypatch: pytest.MonkeyPatch, programs: int
) -> None:
    program = fragments(128, bench.Demands.RULES)
    prices = prices_of(program)
    bounds, programs_left = [prices.bound], iter(range(programs))
    minimise, interpolate = Simplex.minimise, tighten_module._interpolate

    def gives_up(self: Simplex, *arguments: Any) -> Any:
        if next(programs_left, None) is None:
            raise SolverError("time is up")
        return minimise(self, *arguments)

    def watch(*arguments: Any) -> Any:
        prices = interpolate(*arguments)
        bounds.append(prices.bound)
        return prices

    monkeypatch.setattr(Simplex, "minimise", gives_up)
    monkeypatch.setattr(tighten_module, "_interpolate", watch)
    assert find_cuts(program, prices, 0.0, 0.0, inf).prices.bound == min(bounds)

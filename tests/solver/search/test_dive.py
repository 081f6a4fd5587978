"""A dive's plans are feasible, leave no GPU idle that a job could use, and are often the best."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import pairwise
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from instances import snapshot, with_rules
from programs import AnsweringChild, best_value, program_of, usable

from bench.plan import instances as bench
from hopsd.core.placement.program import Program
from hopsd.model.arrays import Bools
from hopsd.solver.backend import child, diving
from hopsd.solver.backend.diving import dive, fix_in_turn
from hopsd.solver.backend.integer_program import Model, model
from hopsd.solver.bound.column_groups import column_groups
from hopsd.solver.bound.dual_prices import Prices, find_prices
from hopsd.solver.search import dive as dive_module
from hopsd.solver.search.dive import dive_at_prices
from hopsd.solver.search.greedy import greedy_by_prices, greedy_by_weight

ONE_ENTRY = Model(
    np.ones(1), np.array([0, 1]), np.zeros(1, dtype=np.int64), np.ones(1), np.ones(1), np.ones(1)
)

needs_highspy = pytest.mark.skipif(find_spec("highspy") is None, reason="highspy is optional")


def prices_of(program: Program) -> Prices:
    floor = program.scaled_objective(greedy_by_weight(program))
    return find_prices(program, column_groups(program), floor, inf)


def whole(program: Program) -> Model:
    return model(program, np.arange(len(program.value)), program.capacity)


def all_columns_of(dive_model: Model) -> Bools:
    return np.ones(len(dive_model.objective), dtype=np.bool_)


@pytest.mark.slow
@needs_highspy
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_fixed_columns_are_feasible_and_nothing_fits_beside_them(seed: int, first: bool) -> None:
    program = program_of(with_rules(snapshot(seed, servers=5, jobs=12, first=first), seed))
    dive_model = whole(program)
    rng, count = np.random.default_rng(seed), len(dive_model.objective)
    preferences = rng.uniform(0.5, 1.5, count) if rng.random() < 0.5 else None
    x = fix_in_turn(dive_model, rng.random(count) < 0.5, inf, preferences)
    assert dive_model.holds(x)
    usage = np.bincount(dive_model.row, dive_model.factor * np.repeat(x, np.diff(dive_model.start)))
    free_capacity = dive_model.upper - np.pad(usage, (0, len(dive_model.upper) - len(usage)))
    for j in np.flatnonzero(x == 0.0).tolist():
        column_entries = slice(dive_model.start[j], dive_model.start[j + 1])
        assert np.any(
            dive_model.factor[column_entries] > free_capacity[dive_model.row[column_entries]]
        )


@pytest.mark.slow
@needs_highspy
@pytest.mark.parametrize("seed", range(6))
def test_a_dive_comes_close_to_the_optimum(seed: int) -> None:
    program = program_of(with_rules(snapshot(seed, servers=8, jobs=20), seed))
    choice = dive_at_prices(program, prices_of(program), inf)
    assert choice is not None
    assert program.feasible(choice)
    assert not usable(program, choice)
    best = best_value(program)
    assert 0.9 * best <= program.scaled_objective(choice) <= best * (1 + 1e-6)


@pytest.mark.slow
@needs_highspy
def test_a_dive_beats_the_greedy_plan_for_wide_shapes() -> None:
    case, noise, rules = bench.Case.IDLE, bench.Noise.PAIR, bench.Demands.RULES
    program = program_of(bench.snapshot(512, case, noise, 0, demands=rules))
    prices = prices_of(program)
    choice = dive_at_prices(program, prices, inf)
    assert choice is not None
    greedy = program.scaled_objective(greedy_by_prices(program, prices))
    assert program.scaled_objective(choice) > 1.02 * greedy


@needs_highspy
def test_a_late_dive_keeps_fixed_columns() -> None:
    dive_model = whole(program_of(snapshot(1, servers=4, jobs=8)))
    assert not fix_in_turn(dive_model, all_columns_of(dive_model), 0.0).any()


def test_there_is_no_dive_without_highspy_or_time(monkeypatch: pytest.MonkeyPatch) -> None:
    dive_model = whole(program_of(snapshot(2, servers=4, jobs=8)))
    assert dive(dive_model, all_columns_of(dive_model), 0.0) is None
    monkeypatch.setattr(diving, "find_spec", lambda _: None)
    assert dive(dive_model, all_columns_of(dive_model), 10.0) is None


@pytest.mark.parametrize("share", [0.0, 1.0, 0.5])
def test_a_broken_child_gives_no_dive(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    dive_model = whole(program_of(snapshot(2, servers=4, jobs=8)))
    monkeypatch.setattr(diving, "find_spec", lambda _: object())  # also where it is missing
    all_columns = np.packbits(np.ones(len(dive_model.objective), dtype=np.bool_)).tobytes()
    record = all_columns[: int(share * len(all_columns))]
    monkeypatch.setattr(child, "Child", AnsweringChild(record))
    assert dive(dive_model, all_columns_of(dive_model), 10.0) is None
    monkeypatch.setattr(child, "Child", AnsweringChild())
    assert dive(dive_model, all_columns_of(dive_model), 10.0) is None


@needs_highspy
def test_columns_fixed_by_a_killed_child_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    dive_model = whole(program_of(with_rules(snapshot(1, servers=16, jobs=40), 1)))
    fixed_rounds = list(diving.rounds(dive_model, all_columns_of(dive_model), inf))
    assert len(fixed_rounds) > 1
    for fixed_columns in fixed_rounds:
        monkeypatch.setattr(child, "Child", AnsweringChild(np.packbits(fixed_columns).tobytes()))
        x = dive(dive_model, all_columns_of(dive_model), 10.0)
        assert x is not None
        assert np.array_equal(x, fixed_columns)
    assert all(np.all(earlier <= later) for earlier, later in pairwise(fixed_rounds))


@needs_highspy
def test_a_program_too_large_for_its_lps_has_no_dive(monkeypatch: pytest.MonkeyPatch) -> None:
    program = program_of(snapshot(3, servers=6, jobs=12))
    prices = prices_of(program)
    monkeypatch.setattr(dive_module, "MAX_COLUMNS", 40)
    assert dive_at_prices(program, prices, inf) is None


def test_a_child_without_time_for_its_first_relaxation_has_no_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(diving, "able_to_dive", lambda: True)
    monkeypatch.setattr(child, "Child", AnsweringChild(b"\0"))
    assert dive(ONE_ENTRY, all_columns_of(ONE_ENTRY), 1.0) is None

"""The knapsack of Sia's program against exhaustive search, and its claimed proofs."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hops_rivals import knapsack, state_space
from hops_rivals.knapsack import Selection, choose
from hops_rivals.state_space import Items
from hypothesis import given, settings
from hypothesis import strategies as st

GAP = 1e-4


@st.composite
def programs(draw: st.DrawFn) -> Items:
    """Up to 5 jobs with up to 4 columns each, on up to 4 types; sizes may exceed a capacity."""
    capacity = draw(st.lists(st.integers(0, 7), min_size=1, max_size=4))
    columns = [
        (job, draw(st.integers(0, len(capacity) - 1)), draw(st.integers(1, 8)), cost)
        for job in range(draw(st.integers(1, 5)))
        for cost in draw(st.lists(st.floats(-1.0, 0.3), min_size=1, max_size=4))
    ]
    job, kind, size = (np.array([c[i] for c in columns], dtype=np.int64) for i in range(3))
    return Items(job, kind, size, np.array([c[3] for c in columns]), np.array(capacity))


def hard(seed: int, jobs: int) -> Items:
    """Counts 1 to 16 on five types, two slow and three fast and nearly equal ones."""
    rng = np.random.default_rng(seed)
    speed = np.array([1.0, 1.1, 3.0, 3.5, 3.6])
    columns = []
    for job in range(jobs):
        counts = 2 ** np.sort(rng.choice(5, rng.integers(1, 4), replace=False))
        loss = rng.uniform(0.8, 1.0)
        for kind, count in product(range(5), counts.tolist()):
            gain = speed[kind] * (count / counts[0]) ** loss * rng.uniform(0.9, 1.0)
            columns.append((job, kind, count, gain**-0.5 - 1.1))
    job, kind, size, cost = (np.array(field) for field in zip(*columns, strict=True))
    return Items(job, kind, size, cost, np.array([128, 128, 128, 64, 64]))


def is_within(items: Items, columns: np.ndarray) -> bool:
    usage = np.bincount(items.kind[columns], items.size[columns], len(items.capacity))
    is_single = len(set(items.job[columns].tolist())) == len(columns)
    return is_single and bool(np.all(usage <= items.capacity))


def exhaustive(items: Items) -> float:
    options_by_job = [[None, *np.flatnonzero(items.job == j)] for j in range(items.jobs)]
    picks = (
        np.array([c for c in pick if c is not None], dtype=np.int64)
        for pick in product(*options_by_job)
    )
    return min(float(items.cost[pick].sum()) for pick in picks if is_within(items, pick))


def check(items: Items, selection: Selection, optimum: float) -> None:
    assert is_within(items, selection.columns)
    assert selection.cost == pytest.approx(float(items.cost[selection.columns].sum()), abs=1e-9)
    assert selection.bound <= optimum + 1e-9
    assert selection.cost >= optimum - 1e-9


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(programs())
def test_the_least_cost_is_found_and_proven(items: Items) -> None:
    selection = choose(items, GAP, 60.0)
    check(items, selection, exhaustive(items))
    assert selection.cost - selection.bound <= GAP * abs(selection.cost) + 1e-9


def test_costs_below_the_relaxations_tolerance_count() -> None:
    zeros = np.zeros(2, dtype=np.int64)
    items = Items(zeros, zeros, zeros + 1, np.array([-(2.0**-24), 0.0]), np.array([1]))
    check(items, choose(items, GAP, 60.0), -(2.0**-24))


@pytest.mark.parametrize("width", [1, 10])
@pytest.mark.parametrize("seed", [4, 5])
def test_a_search_that_is_too_narrow_claims_no_proof(seed: int, width: int) -> None:
    items = hard(seed, 30)
    optimum = choose(items, 0.0, 600.0)
    assert optimum.cost == pytest.approx(optimum.bound)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(knapsack, "WIDTHS", (width,))
        narrow = choose(items, 0.0, 600.0)
    check(items, narrow, optimum.cost)
    assert narrow.bound < narrow.cost - 1e-6


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(programs())
def test_little_memory_keeps_the_result_exact(items: Items) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_space, "MAX_CELLS", 0)
        selection = choose(items, GAP, 60.0)
    check(items, selection, exhaustive(items))
    assert selection.cost - selection.bound <= GAP * abs(selection.cost) + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "jobs"), [(0, 40), (1, 70), (2, 120)])
def test_512_gpus_are_solved_to_the_gap_reproducibly(seed: int, jobs: int) -> None:
    items = hard(seed, jobs)
    selection, second_selection = choose(items, GAP, 600.0), choose(items, GAP, 600.0)
    assert is_within(items, selection.columns)
    assert selection.cost - selection.bound <= GAP * abs(selection.cost) + 1e-9
    assert selection.columns.tolist() == second_selection.columns.tolist()


def test_without_time_the_bound_is_the_relaxations() -> None:
    items = hard(3, 40)
    hasty, proof = choose(items, GAP, 0.0), choose(items, GAP, 600.0)
    assert is_within(items, hasty.columns)
    assert hasty.bound <= proof.bound + 1e-9
    assert hasty.cost >= proof.bound - 1e-9


def test_an_empty_program_has_an_empty_solution() -> None:
    no_items = np.zeros(0, dtype=np.int64)
    assert (
        choose(Items(no_items, no_items, no_items, np.zeros(0), np.array([4])), GAP, 1.0).cost
        == 0.0
    )

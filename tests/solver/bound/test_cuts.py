"""The rounded rows are valid for every plan and cut off fractional ones."""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from instances import snapshot, with_rules
from programs import program_of

from hopsd.core.placement.program import Program
from hopsd.model.arrays import Ints
from hopsd.solver.backend.integer_program import model
from hopsd.solver.bound.cuts import KINDS, SomeItems, capacity_rows, entries


def _usage(sizes: tuple[int, ...], gpus: int) -> np.ndarray:
    """Return the usage (kinds,) of a server's rows by placements of ``sizes`` on ``gpus`` GPUs."""
    count = len(sizes)
    server = np.zeros(count, dtype=np.int64)
    _, amount = entries(server, np.array(sizes, dtype=np.int64), np.array([gpus]))
    usage: np.ndarray = amount.sum(axis=0)
    return usage


@pytest.mark.parametrize("gpus", range(1, 17))
def test_whatever_fits_a_server_satisfies_its_rows(gpus: int) -> None:
    for count in range(1, 5):
        for sizes in combinations_with_replacement(range(1, gpus + 1), count):
            if sum(sizes) <= gpus:
                assert np.all(_usage(sizes, gpus) <= gpus * (1 + 1e-12)), sizes


def test_parts_of_two_large_placements_do_not_share_a_server() -> None:
    """Three quarters of 5 GPUs and a third of 8 fit into 8 GPUs, but no plan contains both."""
    by_gpus, *rounded_rows = 0.75 * _usage((5,), 8) + 0.35 * _usage((8,), 8)
    assert by_gpus <= 8
    assert max(rounded_rows) > 8


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_every_feasible_choice_satisfies_all_rows(seed: int, first: bool, rules: bool) -> None:
    instance = snapshot(seed, servers=6, jobs=12, first=first)
    program = program_of(with_rules(instance, seed) if rules else instance)
    choice = _random_choice(program, np.random.default_rng(seed))
    items = program.items(choice[choice >= 0])
    rows = capacity_rows(program)
    assert np.all(rows.usage(items, np.ones(len(items))) <= rows.limit * (1 + 1e-12))


def _random_choice(program: Program, rng: np.random.Generator) -> Ints:
    """Give jobs, in random order, a random column that still fits."""
    columns = program.configurations
    choice = np.full(columns.jobs, -1, dtype=np.int64)
    for job in rng.permutation(columns.jobs).tolist():
        free_capacity = program.capacity - program.usage(choice)
        fits = program.fits(free_capacity)
        job_columns = np.arange(columns.start[job], columns.start[job + 1])
        job_columns = job_columns[fits[job_columns]]
        if len(job_columns):
            choice[job] = rng.choice(job_columns)
    return choice


@pytest.mark.parametrize("seed", range(4))
def test_the_model_has_the_same_rows(seed: int) -> None:
    """Any x has the same usage of the model's rows as its shapes of the program's."""
    program = program_of(snapshot(seed, servers=6, jobs=8))
    count = len(program.value)
    solver_model = model(program, np.arange(count), program.capacity)
    x = np.random.default_rng(seed).random(count)
    usage = np.zeros(len(solver_model.upper))
    np.add.at(
        usage, solver_model.row, solver_model.factor * np.repeat(x, np.diff(solver_model.start))
    )
    rows = capacity_rows(program)
    expected = rows.usage(program.configurations.shape.astype(np.int64), x)
    jobs = int((np.diff(program.configurations.start) > 0).sum())
    assert np.allclose(usage[jobs:], expected[expected > 0])
    assert np.allclose(solver_model.upper[jobs:], rows.limit[expected > 0])


@pytest.mark.parametrize("rules", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_prices_of_some_items_equal_those_among_all(seed: int, rules: bool) -> None:
    instance = snapshot(seed, servers=6, jobs=12)
    program = program_of(with_rules(instance, seed) if rules else instance)
    rows, rng = capacity_rows(program), np.random.default_rng(seed)
    row_groups = rng.integers(0, 3, len(program.capacity))
    for row_set in (rows, rows.merge(row_groups, 0.5)):
        prices = rng.random(len(row_set.limit))
        for item_subset in (
            np.arange(len(rows.start) - 1),
            np.flatnonzero(rng.random(len(rows.start) - 1) < 0.5),
        ):
            subset_rows, drawn_items = (
                SomeItems(row_set, item_subset),
                rng.integers(0, len(item_subset), 20),
            )
            assert np.allclose(subset_rows.cost(prices), row_set.cost(prices)[item_subset])
            shares = rng.random(20)
            assert np.allclose(
                subset_rows.usage(drawn_items, shares),
                row_set.usage(item_subset[drawn_items], shares),
            )


def test_combined_rows_are_sums() -> None:
    program = program_of(with_rules(snapshot(1, servers=6, jobs=12), 1))
    rows, rng = capacity_rows(program), np.random.default_rng(1)
    row_groups = np.minimum(np.arange(len(program.capacity)), 4)
    merged_rows = rows.merge(row_groups, 0.5)
    assert np.isclose(merged_rows.limit.sum(), 0.5 * rows.limit.sum())
    price = rng.random((KINDS, 5))
    assert np.allclose(merged_rows.cost(price.ravel()), rows.cost(price[:, row_groups].ravel()))

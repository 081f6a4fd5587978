"""Listing further sets of servers renumbers columns and changes nothing else about them."""

from __future__ import annotations

import numpy as np
from rack_programs import program_with_few_sets, random_prices

from hopsd.core.placement.listing import Sets, renumber, with_sets
from hopsd.core.placement.program import Program
from hopsd.model.arrays import Ints
from hopsd.solver.bound.unlisted import better_sets


def content(program: Program, columns: Ints) -> list[tuple[object, ...]]:
    """The job, the value and the demands of each column."""
    columns_of = program.configurations
    return [
        (
            int(columns_of.jobs_of(np.array([column]))[0]),
            float(program.value[column]),
            sorted(columns_of.demands.amounts_of(int(columns_of.shape[column]))),
        )
        for column in columns.tolist()
    ]


def test_renumbered_columns_are_the_same_configurations() -> None:
    changed = 0
    for seed in range(12):
        sets: Sets = {}
        program = program_with_few_sets(seed)
        columns = np.arange(len(program.value))
        before = content(program, columns)
        rng = np.random.default_rng(seed)
        for _ in range(2):
            prices = random_prices(program, rng.integers(1000))
            sets = with_sets(sets, list(better_sets(program, prices, rng, 5)))
            after = program_with_few_sets(seed, sets)
            columns = renumber(program.configurations, after.configurations, columns)
            changed += len(after.value) > len(program.value)
            program = after
        assert content(program, columns) == before
        assert len(np.unique(columns)) == len(columns)
    assert changed >= 8


def test_a_set_is_listed_once() -> None:
    program = program_with_few_sets(3)
    rng = np.random.default_rng(0)
    sets = [
        found
        for seed in range(4)
        for found in better_sets(program, random_prices(program, seed), rng, 5)
    ]
    assert sets
    once, again = with_sets({}, sets), with_sets(with_sets({}, sets[:3]), [*sets, *sets])
    assert once.keys() == again.keys()
    for key, shapes in once.items():
        np.testing.assert_array_equal(shapes.servers, again[key].servers)
        assert len(np.unique(shapes.servers, axis=0)) == len(shapes.servers)

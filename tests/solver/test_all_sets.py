"""Rounds over all sets of servers: bounds that hold for the unlisted ones, too, and plans."""

from __future__ import annotations

import os
import sys
from functools import partial
from math import inf
from time import monotonic

import numpy as np
import pytest
from rack_programs import program_of, program_with_few_sets

from bench.racks.instances import demanding_snapshot
from hopsd.core.placement.listing import Listing, with_sets
from hopsd.core.placement.program import Program
from hopsd.model.plan import PlanSettings
from hopsd.policies.hops.policy import plan
from hopsd.solver.all_sets import Step, steps, steps_in_child
from hopsd.solver.bound.column_groups import column_groups
from hopsd.solver.bound.dual_prices import find_prices
from hopsd.solver.bound.unlisted import bound_of_items
from hopsd.solver.search.greedy import greedy_by_weight
from hopsd.solver.solve import solve


def replay(program: Program, listing: Listing, found: list[Step]) -> tuple[float, float]:
    """List the steps' sets as the parent does; return the best value of a choice, and the bound."""
    value, bound, sets = 0.0, inf, with_sets({}, [])
    for step in found:
        if step.sets:
            sets = with_sets(sets, step.sets)
            program = listing(sets)
        bound = min(bound, bound_of_items(program, step.prices(program)))
        if step.choice is not None:
            assert program.feasible(step.choice)
            value = max(value, program.scaled_objective(step.choice))
    return value, bound


def start(program: Program) -> tuple[np.ndarray, float]:
    value = program.scaled_objective(greedy_by_weight(program))
    return find_prices(program, column_groups(program), value, inf).row, value


@pytest.mark.parametrize("seed", [0, 5, 6, 8])
def test_bounds_hold_for_all_sets_and_choices_fit(
    seed: int,
) -> None:
    whole = solve(program_of(seed), 0.0, 60.0, turns=3)
    best = program_of(seed).scaled_objective(whole.choice)
    program, listing = program_with_few_sets(seed), partial(program_with_few_sets, seed)
    row, value = start(program)
    found_value, bound = replay(
        program, listing, list(steps(program, listing, {}, row, value, 0.0))
    )
    assert found_value <= whole.bound * (1 + 1e-9)
    assert best <= bound * (1 + 1e-9)
    assert best <= 1.05 * max(found_value, value)


def test_the_child_answers_what_this_process_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # for the listing's own module
    program, listing = program_with_few_sets(6), partial(program_with_few_sets, 6)
    row, value = start(program)
    here = list(steps(program, listing, {}, row, value, 0.0))
    there = list(steps_in_child(program, listing, {}, row, value, 0.0, monotonic() + 60.0))
    assert len(here) == len(there) > 1
    assert replay(program, listing, here) == replay(program, listing, there)


def test_a_listing_that_cannot_be_sent_gives_no_steps() -> None:
    program = program_with_few_sets(1)
    row, value = start(program)
    listing: Listing = lambda _sets: program  # noqa: E731 - a function without a name
    assert not list(steps_in_child(program, listing, {}, row, value, 0.0, monotonic() + 60.0))


@pytest.mark.long
def test_plans_with_few_listed_sets_are_the_same_twice() -> None:
    snapshot = demanding_snapshot(600, 1 / 3, 3, 0.8)
    settings = PlanSettings(gap=0.01, time_limit_seconds=300.0)
    first, second = plan(snapshot, settings), plan(snapshot, settings)
    assert first.placements == second.placements
    assert first.upper_bound == second.upper_bound

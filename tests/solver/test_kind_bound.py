"""The bound by equal servers holds for every plan and is lower than that of linear programs."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from instances import snapshot, with_rules
from programs import best_value, program_of

from bench.racks.instances import demanding_snapshot
from hopsd.core.placement import rack_sets
from hopsd.core.placement.program import Program
from hopsd.solver import kind_bound
from hopsd.solver.backend import cbc
from hopsd.solver.backend.integer_program import Answer, Model
from hopsd.solver.bound.column_groups import column_groups
from hopsd.solver.bound.dual_prices import find_prices
from hopsd.solver.kind_bound import bound_by_kinds
from hopsd.solver.search.greedy import greedy_by_weight


def solve(model: Model) -> Answer:
    return cbc.solve(model, None, 0.0, 60.0)


def small(seed: int) -> Program:
    """16 servers with jobs bound to leaves of four of them."""
    instance = demanding_snapshot(64, 0.8, seed, idle=0.8)
    nodes = tuple(
        replace(node, switches=(f"l{index // 4}",)) for index, node in enumerate(instance.nodes)
    )
    return program_of(replace(instance, nodes=nodes))


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_no_plan_is_worth_more_than_the_bound(seed: int, first: bool) -> None:
    """Servers differ in factors, node lists, types and idle GPUs."""
    program = program_of(with_rules(snapshot(seed, servers=6, jobs=12, first=first), seed))
    assert bound_by_kinds(program, solve) >= best_value(program) * (1 - 1e-6)


@pytest.mark.parametrize("seed", range(12))
def test_no_plan_with_any_set_of_servers_is_worth_more(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = best_value(small(seed))
    monkeypatch.setattr(rack_sets, "MAX_SETS", 0)
    assert bound_by_kinds(small(seed), solve) >= best * (1 - 1e-6)


@pytest.mark.slow
def test_the_bound_is_lower_than_that_of_prices() -> None:
    """The bound is 368.2 instead of 381; linear programs with 20 CPU s of cuts prove 371.7."""
    program = program_of(demanding_snapshot(600, 1 / 3, seed=2))
    prices = find_prices(
        program, column_groups(program), program.scaled_objective(greedy_by_weight(program)), inf
    )
    assert bound_by_kinds(program, solve) < 0.98 * prices.bound


@pytest.mark.slow
def test_sets_that_their_leaves_cannot_hold_are_excluded() -> None:
    """With 32 nodes on one leaf of 18, the bound would be 1751."""
    assert bound_by_kinds(program_of(demanding_snapshot(600, 1 / 3, seed=0)), solve) < 1740


def test_with_too_many_patterns_there_is_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind_bound, "_MAX_PATTERNS", 3)
    assert bound_by_kinds(small(0), solve) == inf


def test_without_an_answer_there_is_no_bound() -> None:
    assert bound_by_kinds(small(0), lambda _: Answer()) == inf

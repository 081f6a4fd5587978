"""A bound by cases holds, whatever it aims at, and is closer than that of the prices alone."""

from __future__ import annotations

from time import monotonic

import pytest
from instances import snapshot
from programs import program_of

from hopsd.solver.bound.branching import bound_by_branching
from hopsd.solver.bound.column_groups import column_groups
from hopsd.solver.bound.dual_prices import find_prices
from hopsd.solver.exact import solve_exactly
from hopsd.solver.search.greedy import greedy_by_weight


@pytest.mark.parametrize("share", [0.0, 0.9, 1.0, 1.005, 1.05])
def test_no_plan_is_above_the_bound(share: float) -> None:
    proof_count = 0
    for seed in range(25):
        program = program_of(snapshot(seed, servers=5, jobs=6, first=seed % 2 == 0))
        best = solve_exactly(program)
        if best is None or not len(program.value):
            continue
        optimum, deadline = program.scaled_objective(best), monotonic() + 60.0
        floor = program.scaled_objective(greedy_by_weight(program))
        prices = find_prices(program, column_groups(program), floor, deadline)
        bound = bound_by_branching(program, prices, share * optimum, deadline, 50)
        assert optimum * (1 - 1e-9) <= bound <= prices.bound
        proof_count += bool(bound < prices.bound * (1 - 1e-6))
    # Aims far from the optimum are out of reach, or reached by prices alone.
    assert proof_count > 0 or share not in (1.0, 1.005)

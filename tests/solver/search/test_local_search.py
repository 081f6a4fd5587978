"""A pass of the local search over groups of servers."""

from __future__ import annotations

from math import inf
from time import monotonic

import numpy as np
import pytest
from instances import snapshot, with_rules
from programs import program_of

from hopsd.solver.backend.integer_program import Answer, Model
from hopsd.solver.backend.solver_choice import backend
from hopsd.solver.bound.column_groups import column_groups
from hopsd.solver.bound.dual_prices import find_prices
from hopsd.solver.search import local_search
from hopsd.solver.search.greedy import greedy_by_weight
from hopsd.solver.search.local_search import Effort, improve
from hopsd.solver.search.neighbourhoods import group_servers


@pytest.mark.parametrize("rules", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_a_pass_is_feasible_and_never_worse(
    seed: int, rules: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_search, "_GROUP_GPUS", 24)  # several groups
    instance = snapshot(seed, servers=12, jobs=24)
    program = program_of(with_rules(instance, seed) if rules else instance)
    choice = greedy_by_weight(program)
    old_worth = program.scaled_objective(choice)
    prices = find_prices(program, column_groups(program), old_worth, inf)
    effort = Effort(0.1, monotonic() + 60.0)
    better = improve(program, choice, prices, (seed, 0), backend(), effort)
    assert program.feasible(better)
    assert old_worth <= program.scaled_objective(better) <= prices.bound * (1 + 1e-9)


def test_over_allocating_answers_are_rejected() -> None:
    program = program_of(snapshot(0, servers=12, jobs=24))
    choice = greedy_by_weight(program)
    prices = find_prices(program, column_groups(program), program.scaled_objective(choice), inf)

    def take_all(model: Model, *_: object) -> Answer:
        return Answer(np.ones(len(model.objective)))

    effort = Effort(0.1, monotonic() + 60.0)
    assert np.array_equal(improve(program, choice, prices, (0, 0), take_all, effort), choice)


@pytest.mark.parametrize("seed", range(5))
def test_groups_are_few_and_stay_below_the_requested_size(seed: int) -> None:
    program = program_of(snapshot(seed, servers=40, jobs=60))
    choice = greedy_by_weight(program)
    prices = find_prices(program, column_groups(program), program.scaled_objective(choice), inf)
    group = group_servers(program, choice, prices, 64, (seed, 0))
    gpus = np.bincount(group, weights=program.idle)
    assert len(group) == len(program.idle)
    assert gpus.max() <= 64
    assert len(gpus) <= 2 * program.idle.sum() / 64 + 1

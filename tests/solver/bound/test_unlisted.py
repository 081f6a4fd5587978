"""The best sets of servers are found without listing all of them; bounds hold for every set."""

from __future__ import annotations

import numpy as np
import pytest
from rack_programs import program_of, random_prices

from hopsd.core.placement import rack_sets
from hopsd.core.placement.listing import with_sets
from hopsd.core.placement.rack_sets import leaves_of
from hopsd.solver.bound.unlisted import (
    better_sets,
    bound_of_all,
    bound_of_items,
    bound_without_prices,
)


@pytest.mark.parametrize("seed", range(30))
def test_the_best_sets_are_the_cheapest_of_all(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    families = {sets.key: sets for sets in program_of(seed).configurations.families}
    monkeypatch.setattr(rack_sets, "MAX_SETS", 0)
    program = program_of(seed)
    prices = random_prices(program, seed)
    leaf = program.configurations.leaf
    assert leaf is not None
    for sets, servers in better_sets(program, prices, np.random.default_rng(0), 0):
        cost = np.zeros(len(leaf))
        cost[sets.able.servers] = prices.item[sets.whole]
        shapes = families[sets.key].listed_shapes.servers
        few = leaves_of(leaf, shapes) <= leaves_of(leaf, servers[None, :])
        assert families[sets.key].find(servers) >= 0
        assert cost[servers].sum() == pytest.approx(cost[shapes[few]].sum(axis=1).min())


@pytest.mark.slow
def test_some_unlisted_sets_are_better_than_listed_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rack_sets, "MAX_SETS", 0)
    rng = np.random.default_rng(0)
    programs = [(seed, program_of(seed)) for seed in range(30)]
    better = [list(better_sets(p, random_prices(p, seed), rng, 0)) for seed, p in programs]
    assert sum(map(bool, better)) >= 8


@pytest.mark.parametrize("seed", range(30))
def test_listing_the_better_sets_leaves_none_better(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listing the better sets is sufficient for the same prices."""
    rng = np.random.default_rng(0)
    whole = program_of(seed)
    assert not list(better_sets(whole, random_prices(whole, seed), rng, 3))
    monkeypatch.setattr(rack_sets, "MAX_SETS", 0)
    program = program_of(seed)
    prices = random_prices(program, seed)
    sets = with_sets({}, list(better_sets(program, prices, rng, 3)))
    more = program_of(seed, sets)
    assert not list(better_sets(more, random_prices(more, seed), rng, 3))
    assert bound_of_items(more, random_prices(more, seed)) == pytest.approx(
        bound_of_items(program, prices)
    )


@pytest.mark.parametrize("seed", range(30))
def test_the_bound_equals_that_of_all_sets_at_the_same_prices(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = program_of(seed)
    of_whole = random_prices(whole, seed).bound
    monkeypatch.setattr(rack_sets, "MAX_SETS", 0)
    program = program_of(seed)
    prices = random_prices(program, seed)
    assert prices.bound <= of_whole * (1 + 1e-9)
    assert bound_of_items(program, prices) == pytest.approx(of_whole)
    assert bound_of_all(program, prices) <= bound_of_items(program, prices)
    assert bound_of_all(program, prices) <= bound_without_prices(program)

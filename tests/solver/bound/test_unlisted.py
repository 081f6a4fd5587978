"""The best sets of servers are found without listing all of them; bounds hold for every set."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from bench.racks.instances import demanding_snapshot
from hopsd.core.placement import rack_sets
from hopsd.core.placement.generate import NO_MORE, generate
from hopsd.core.placement.program import Program, build
from hopsd.core.placement.rack_sets import RackFamily, leaves_of
from hopsd.core.placement.shapes import ShapesOfSize
from hopsd.model.arrays import Ints
from hopsd.model.plan import PlanSettings
from hopsd.policies.hops.candidates import candidates
from hopsd.solver.bound.cuts import capacity_rows
from hopsd.solver.bound.dual_prices import Prices, prices_at
from hopsd.solver.bound.unlisted import (
    better_sets,
    bound_of_all,
    bound_of_items,
    bound_without_prices,
)


def program_of(seed: int, sets: Mapping[Hashable, ShapesOfSize] = NO_MORE) -> Program:
    """16 servers in leaves of four, two of which have a switch in common."""
    snapshot = demanding_snapshot(64, 0.8, seed, idle=0.8)
    nodes = tuple(
        replace(node, switches=(f"s{index // 8}", f"l{index // 4}"))
        for index, node in enumerate(snapshot.nodes)
    )
    jobs = tuple(
        replace(
            job,
            rules=replace(
                job.rules,
                spread_segments=index % 4 == 1,
                consolidate_segments=index % 4 == 2,
            ),
        )
        if job.rules.segment
        else job
        for index, job in enumerate(snapshot.jobs)
    )
    choice = candidates(replace(snapshot, nodes=nodes, jobs=jobs), PlanSettings())
    columns = generate(
        choice.jobs,
        choice.available,
        choice.sensitivity,
        sigma=1.4,
        keep_present=False,
        remaining_limits=choice.remaining_limits,
        sets=sets,
    )
    priorities = [choice.priority[job.id] for job in choice.jobs]
    return build(columns, priorities, 1.0, np.ones(len(choice.jobs)))


def random_prices(program: Program, seed: int) -> Prices:
    """Return random prices of about the worth of GPUs to the jobs."""
    rng, rows = np.random.default_rng(seed), capacity_rows(program)
    worth = float(program.weight.sum()) / program.idle.sum()
    return prices_at(program, rows, rng.uniform(0.0, 0.5 * worth, len(rows.limit)))


def as_shapes(pairs: Iterable[tuple[RackFamily, Ints]]) -> dict[Hashable, ShapesOfSize]:
    rows: dict[Hashable, list[Ints]] = defaultdict(list)
    counts = {}
    for sets, servers in pairs:
        rows[sets.key].append(servers)
        counts[sets.key] = sets.size // sets.count
    rows_by_key = {key: np.unique(np.stack(of_key), axis=0) for key, of_key in rows.items()}
    return {
        key: ShapesOfSize(rows_of_key, np.full(rows_of_key.shape, counts[key]))
        for key, rows_of_key in rows_by_key.items()
    }


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
    sets = as_shapes(better_sets(program, prices, rng, 3))
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

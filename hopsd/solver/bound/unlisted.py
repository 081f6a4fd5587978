"""The bound of programs whose configurations list only some sets of servers.

At given prices, a job's best set of servers is found without listing all sets: within a leaf its
cheapest servers are best, and dynamic programming over the leaves says how many servers each gives.
The Lagrangian bound of these best profits holds for all sets.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.core.placement.rack_sets import RackFamily
from hopsd.model.arrays import NONE, Floats, Ints
from hopsd.solver.bound.cuts import KINDS
from hopsd.solver.bound.dual_prices import Prices, prices_at
from hopsd.solver.bound.knapsack_cuts import rows_of_servers
from hopsd.solver.bound.reduced_cost import ItemPrices

# Relative: profits that differ by less count as equal.
_ROUNDING = 1e-9
ALIKE = 15
"""How many sets are listed beside each best one: servers that are alike have different prices."""

# Further sets come from the known prices times random factors within 1 ± this spread.
_SPREAD = 0.5


def bound_of_all(program: Program, prices: Prices) -> float:
    """Return a bound on any plan, with listed or unlisted sets of servers."""
    # Averaging prices over servers that are alike proves no less: the dual function is convex.
    even = prices_at(program, prices.rows, _mean_prices(program, prices))
    bounds = bound_of_items(program, prices), bound_of_items(program, even)
    return min(*bounds, bound_without_prices(program))


def bound_without_prices(program: Program) -> float:
    """Return the bound that gives every job its best column or set."""
    return float(_largest(program).sum())


def _incomplete(program: Program) -> list[RackFamily]:
    return [sets for sets in program.configurations.families if not sets.complete]


def value_of_sets(program: Program, sets: RackFamily, kind: int) -> Floats:
    """Bound each job's value of the best set on ``leaves[kind]`` leaves from above, (jobs,)."""
    columns = sets.columns(kind)
    value: Floats = program.value[columns] * sets.headroom[:, kind]
    return value


def _largest(program: Program) -> Floats:
    """Return the most that every job can be worth, (jobs,)."""
    largest = np.maximum(program.most(), 0.0)
    for sets in _incomplete(program):
        for kind in range(len(sets.leaves)):
            np.maximum.at(largest, sets.jobs, value_of_sets(program, sets, kind))
    return largest


def bound_of_items(program: Program, prices: ItemPrices) -> float:
    """Return the bound that ``prices`` prove for unlisted sets as well. Cliques do not count those
    sets, which makes the bound weaker, but still valid.
    """
    best = prices.job.copy()
    for sets in _incomplete(program):
        for profit in _profits(program, prices, sets):
            np.maximum.at(best, sets.jobs, profit)
    return float(best.sum()) + prices.capacity


def better_sets(
    program: Program, prices: ItemPrices, rng: np.random.Generator, alike: int = ALIKE
) -> Iterator[tuple[RackFamily, Ints]]:
    """Yield even sets of servers from which a job would profit more than from the listed ones: for
    each family and number of leaves the cheapest set, and ``alike`` others, each the cheapest at
    randomly changed prices.
    """
    for sets in _incomplete(program):
        if sets.parts is not None:
            continue
        for leaves, profit in zip(
            sets.leaves.tolist(), _profits(program, prices, sets), strict=True
        ):
            if np.any(profit > prices.job[sets.jobs] * (1 + _ROUNDING)):
                cost = prices.item[sets.whole]
                yield sets, _cheapest_set(cost, sets, leaves)
                for _ in range(alike):
                    factor = rng.uniform(1 - _SPREAD, 1 + _SPREAD, len(cost))
                    yield sets, _cheapest_set(factor * cost, sets, leaves)


def _profits(program: Program, prices: ItemPrices, sets: RackFamily) -> Iterator[Floats]:
    """Yield, for every kind, the most that each job can profit from a set on at most
    ``leaves[kind]`` leaves, (jobs,).
    """
    cost, share = _least_cost(prices, sets), program.configurations.share
    for kind, leaves in enumerate(sets.leaves.tolist()):
        profit = value_of_sets(program, sets, kind) - cost[leaves - 1]
        if share is not None:
            profit -= prices.item[share[sets.columns(kind)]]
        yield profit


def _least_cost(prices: ItemPrices, sets: RackFamily) -> Floats:
    """Return the least cost of a set of servers on at most 1, 2, ... leaves, ``inf`` for none."""
    max_leaves = int(sets.leaves.max())
    whole_cost = prices.item[sets.whole]
    if sets.parts is not None:
        return _least_of_uneven(prices, sets, whole_cost, sets.able.by_leaf(), max_leaves)
    minimum = np.full(max_leaves, inf)
    for leaf_servers in _regions(sets, whole_cost):
        costs = _costs(sets, whole_cost, leaf_servers)
        *_, best = _least_of_leaves(costs, sets.groups, max_leaves)
        np.minimum(minimum, np.minimum.accumulate(best[1:, sets.groups]), out=minimum)
    return minimum


def _cheapest_set(cost: Floats, sets: RackFamily, leaves: int) -> Ints:
    """Return the servers, ascending, of the even set of the least ``cost`` (able servers,) on at
    most ``leaves`` leaves.
    """
    least, cheapest = inf, NONE
    for leaf_servers in _regions(sets, cost):
        costs = _costs(sets, cost, leaf_servers)
        tables = list(_least_of_leaves(costs, sets.groups, leaves))
        number = int(tables[-1][:, sets.groups].argmin())
        if tables[-1][number, sets.groups] < least:
            least, cheapest = float(tables[-1][number, sets.groups]), NONE
            groups = sets.groups
            for servers, leaf_costs, before, after in reversed(
                list(zip(leaf_servers, costs, tables, tables[1:], strict=False))
            ):
                if after[number, groups] < before[number, groups]:
                    rest = before[number - 1, groups - 1 :: -1][: len(leaf_costs)]
                    group_count = 1 + int(np.argmin(rest + leaf_costs[: len(rest)]))
                    number, groups = number - 1, groups - group_count
                    cheapest = np.append(cheapest, servers[: group_count * sets.unit])
    return np.sort(sets.able.servers[cheapest])


def _regions(sets: RackFamily, cost: Floats) -> Iterator[list[Ints]]:
    """Yield, for every region, the positions of each leaf's servers, the cheapest first."""
    for region in sets.able.regions(sets.rule, sets.count):
        groups = [region[group] for group in sets.able.only(region).by_leaf()]
        yield [group[np.argsort(cost[group], kind="stable")] for group in groups]


def _costs(sets: RackFamily, cost: Floats, leaf_servers: list[Ints]) -> list[Floats]:
    """Return what 1, 2, ... units of each leaf's first servers cost, up to the most it may hold."""
    unit, units = sets.unit, sets.rule.units
    return [
        cost[servers].cumsum()[unit - 1 :: unit][: units(sets.count, len(servers))]
        for servers in leaf_servers
    ]


def _least_of_leaves(costs: list[Floats], groups: int, leaves: int) -> Iterator[Floats]:
    """Yield the table (leaves + 1, groups + 1) before the first and after each leaf: the least cost
    of 0, 1, ... groups on exactly 0, 1, ... of the leaves so far.

    ``costs`` holds each leaf's cost of 1, 2, ... groups.
    """
    best = np.full((leaves + 1, groups + 1), inf)
    best[0, 0] = 0.0
    yield best
    for leaf_costs in costs:
        before, best = best, best.copy()
        for count, cost in enumerate(leaf_costs[:groups].tolist(), 1):
            np.minimum(
                best[1:, count:], before[:-1, : groups + 1 - count] + cost, out=best[1:, count:]
            )
        yield best


def _least_of_uneven(
    prices: ItemPrices,
    sets: RackFamily,
    whole_cost: Floats,
    groups: list[Ints],
    max_leaves: int,
) -> Floats:
    """:func:`_least_cost` for servers that give different counts: the cost of parts of the servers
    with the cheapest GPUs, less how much cheaper per GPU a server's last part could be than all.
    """
    rate = whole_cost / np.maximum(1, sets.able.idle)
    slack = 0.0
    if sets.parts is not None:
        lengths = sets.able.idle
        count = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths) + 1
        part = prices.item[sets.parts]
        slack = float((np.repeat(rate, lengths) * count - part).max(initial=0.0))
    minimum = np.full(max_leaves, inf)
    all_servers = np.arange(len(rate))
    for leaves in range(1, max_leaves + 1):
        places = groups if leaves == 1 else [all_servers]
        for place in places:
            order = place[np.argsort(rate[place], kind="stable")]
            amounts = np.minimum(np.cumsum(sets.able.idle[order]), sets.size)
            if len(amounts) and amounts[-1] == sets.size:
                cost = float(rate[order] @ np.diff(amounts, prepend=0))
                minimum[leaves - 1] = min(minimum[leaves - 1], cost - slack)
    return np.minimum.accumulate(minimum)


def _mean_prices(program: Program, prices: Prices) -> Floats:
    """Return the prices (rows,) averaged over servers that are alike."""
    group = _alike(program)
    count = np.bincount(group)
    even = [(np.bincount(group, row) / count)[group] for row in prices.row.reshape(KINDS, -1)]
    return np.concatenate(even)


def _alike(program: Program) -> Ints:
    """Number the rows, (rows,): the GPUs, cores or memory of servers in one leaf that have equally
    much of each get the same number.
    """
    columns = program.configurations
    leaf = np.zeros_like(columns.pool) if columns.leaf is None else columns.leaf
    resource, capacity = rows_of_servers(program)
    keys = np.stack([columns.pool, leaf, columns.speed, *capacity.T], axis=1)
    servers = np.unique(keys, axis=0, return_inverse=True)[1].ravel()
    limits = -1 - np.arange(len(columns.server))
    keys = np.stack([np.where(columns.server < 0, limits, servers[columns.server]), resource])
    group: Ints = np.unique(keys, axis=1, return_inverse=True)[1].ravel()
    return group

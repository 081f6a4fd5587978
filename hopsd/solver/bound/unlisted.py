"""The bound of programs whose configurations list only some sets of servers.

At given prices the best set of servers for a job is found without listing all: the cheapest of each
leaf are best there, and dynamic programming over the leaves divides the servers among them. The
Lagrangian bound of these best profits holds for all sets.
"""

from __future__ import annotations

from math import inf

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.core.placement.rack_sets import RackFamily
from hopsd.model.arrays import Floats, Ints
from hopsd.solver.bound.cuts import KINDS
from hopsd.solver.bound.dual_prices import Prices, prices_at
from hopsd.solver.bound.knapsack_cuts import rows_of_servers
from hopsd.solver.bound.reduced_cost import ItemPrices


def bound_of_all(program: Program, prices: Prices) -> float:
    """A bound on any plan, with listed sets of servers or others."""
    # Equal prices for servers that are alike prove no less: the dual function is convex.
    even = prices_at(program, prices.rows, _averaged(program, prices))
    bounds = bound_of_items(program, prices), bound_of_items(program, even)
    return min(*bounds, bound_without_prices(program))


def bound_without_prices(program: Program) -> float:
    """The bound where every job gets what is best for it."""
    return float(_largest(program).sum())


def _incomplete(program: Program) -> list[RackFamily]:
    return [sets for sets in program.configurations.families if not sets.complete]


def value_of_sets(program: Program, sets: RackFamily, kind: int) -> Floats:
    """What the best set on ``leaves[kind]`` leaves is worth at most to each job, (jobs,)."""
    columns = sets.columns(kind)
    value: Floats = program.value[columns] * sets.headroom[:, kind]
    return value


def _largest(program: Program) -> Floats:
    """The most that every job can be worth, (jobs,)."""
    largest = np.maximum(program.most(), 0.0)
    for sets in _incomplete(program):
        for kind in range(len(sets.leaves)):
            np.maximum.at(largest, sets.jobs, value_of_sets(program, sets, kind))
    return largest


def bound_of_items(program: Program, prices: ItemPrices) -> float:
    """The bound of ``prices``, with sets that are not listed. A clique has none of these, which
    proves less, but no less than is true.
    """
    best = prices.job.copy()
    for sets in _incomplete(program):
        cost = _least_cost(prices, sets)
        for kind, leaves in enumerate(sets.leaves.tolist()):
            profit = value_of_sets(program, sets, kind) - cost[leaves - 1]
            share = program.configurations.share
            if share is not None:
                profit -= prices.item[share[sets.columns(kind)]]
            np.maximum.at(best, sets.jobs, profit)
    return float(best.sum()) + prices.capacity


def _least_cost(prices: ItemPrices, sets: RackFamily) -> Floats:
    """What a set of servers on at most 1, 2, ... leaves costs at least; ``inf``: there is none."""
    max_leaves = int(sets.leaves.max())
    whole_cost = prices.item[sets.whole]
    if sets.parts is not None:
        return _least_of_uneven(prices, sets, whole_cost, sets.able.by_leaf(), max_leaves)
    unit, rule, minimum = sets.unit, sets.rule, np.full(max_leaves, inf)
    for region in sets.able.regions(rule, sets.count):
        costs = [
            np.sort(whole_cost[region][group]).cumsum()[unit - 1 :: unit][
                : rule.units(sets.count, len(group))
            ]
            for group in sets.able.only(region).by_leaf()
        ]
        np.minimum(minimum, least_of_leaves(costs, sets.groups, max_leaves), out=minimum)
    return minimum


def least_of_leaves(costs: list[Floats], groups: int, max_leaves: int) -> Floats:
    """The least sum over at most 1, 2, ... ``max_leaves`` leaves that give ``groups`` in all.

    ``costs``: of each leaf for 1, 2, ... groups.
    """
    best = np.full((max_leaves + 1, groups + 1), inf)
    best[0, 0] = 0.0
    for of_leaf in costs:
        before = best.copy()
        for count, cost in enumerate(of_leaf[:groups].tolist(), 1):
            np.minimum(
                best[1:, count:], before[:-1, : groups + 1 - count] + cost, out=best[1:, count:]
            )
    minimum: Floats = np.minimum.accumulate(best[1:, groups])
    return minimum


def _least_of_uneven(
    prices: ItemPrices,
    sets: RackFamily,
    whole_cost: Floats,
    groups: list[Ints],
    max_leaves: int,
) -> Floats:
    """:func:`_least_cost` where servers give different counts: parts of the servers with the
    cheapest GPUs, less what a server's last part could be cheaper per GPU than all of it.
    """
    rate = whole_cost / np.maximum(1, sets.able.idle)
    slack = 0.0
    if sets.parts is not None:
        lengths = sets.able.idle
        count = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths) + 1
        part = prices.item[sets.parts]
        slack = float((np.repeat(rate, lengths) * count - part).max(initial=0.0))
    minimum = np.full(max_leaves, inf)
    everywhere = np.arange(len(rate))
    for leaves in range(1, max_leaves + 1):
        places = groups if leaves == 1 else [everywhere]
        for place in places:
            order = place[np.argsort(rate[place], kind="stable")]
            amounts = np.minimum(np.cumsum(sets.able.idle[order]), sets.size)
            if len(amounts) and amounts[-1] == sets.size:
                cost = float(rate[order] @ np.diff(amounts, prepend=0))
                minimum[leaves - 1] = min(minimum[leaves - 1], cost - slack)
    return np.minimum.accumulate(minimum)


def _averaged(program: Program, prices: Prices) -> Floats:
    """The prices (rows,) where servers that are alike have their mean."""
    group = _alike(program)
    count = np.bincount(group)
    even = [(np.bincount(group, row) / count)[group] for row in prices.row.reshape(KINDS, -1)]
    return np.concatenate(even)


def _alike(program: Program) -> Ints:
    """A number for every row, (rows,): the same for the GPUs, the cores or the memory of servers
    that have equally much of each, in one leaf.
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

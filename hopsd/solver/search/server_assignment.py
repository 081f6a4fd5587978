"""Assign servers to a class plan: the heaviest jobs get the fastest servers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.model.arrays import Bools, Ints
from hopsd.solver.bound.column_groups import ColumnGroups
from hopsd.solver.search.cutting_patterns import ClassPlan, Pattern, ServerClass


def assign_servers(program: Program, parts: ColumnGroups, plan: ClassPlan) -> Ints:
    """Return a feasible choice (jobs,) close to the class plan; what does not fit is left out."""
    choice = np.full(program.configurations.jobs, -1, dtype=np.int64)
    order = plan.column_groups[np.argsort(-parts.best[plan.column_groups], kind="stable")]
    for pool in dict.fromkeys(group.pool for group, _ in plan.bins):
        pool_groups = [int(s) for s in order if parts.pool[s] == pool]
        spread = [s for s in pool_groups if parts.servers[s] > 1]
        spread_columns = _place_spread(program, parts, spread)
        choice[parts.job[spread[: len(spread_columns)]]] = spread_columns
        bins = [(group, patterns) for group, patterns in plan.bins if group.pool == pool]
        slots = _slots(program, bins, np.array(spread_columns, dtype=np.int64))
        for column_group in pool_groups:
            if parts.servers[column_group] == 1:
                [(_, gpus)] = program.gpus_on(int(parts.first[column_group]))
                column = _best_slot(program, parts, column_group, slots[gpus])
                choice[parts.job[column_group]] = column
    return choice


def _place_spread(program: Program, parts: ColumnGroups, spread: Sequence[int]) -> list[int]:
    """Choose a column for each spread column group, no two on one server: the best, or leftmost.

    Taking the best columns may leave servers without a neighbour; packed from the left, all fit.
    """
    fewer = list[int]()
    for leftmost in (False, True):
        columns = list[int]()
        is_occupied = np.zeros(len(program.capacity), dtype=np.bool_)
        for column_group in spread:
            column = _free_column(program, parts, column_group, is_occupied, leftmost=leftmost)
            if column < 0:
                break
            columns.append(column)
        if len(columns) == len(spread):
            return columns
        fewer = max(fewer, columns, key=len)
    return fewer


def _free_column(
    program: Program, parts: ColumnGroups, column_group: int, is_occupied: Bools, *, leftmost: bool
) -> int:
    """Take a column of the group whose servers are all free; -1 if there is none."""
    shapes = program.configurations.shapes
    first, end = int(parts.first[column_group]), int(parts.end[column_group])
    starts = shapes.start[program.configurations.shape[first:end]]
    servers = shapes.server[starts[:, None] + np.arange(parts.servers[column_group])]
    free = np.flatnonzero(~is_occupied[servers].any(axis=1))
    if not len(free):
        return -1
    best = 0 if leftmost else int(np.argmax(program.value[first + free]))
    is_occupied[servers[free[best]]] = True
    return first + int(free[best])


def _slots(
    program: Program, bins: Sequence[tuple[ServerClass, Counter[Pattern]]], spread: Ints
) -> dict[int, list[int]]:
    """List servers by the size of their slots beside the spread columns, once for each slot."""
    usage: dict[int, int] = {}
    for column in spread.tolist():
        usage |= dict(program.gpus_on(column))
    slots: dict[int, list[int]] = defaultdict(list)
    for group, patterns in bins:
        remaining = patterns.copy()
        servers = group.servers[np.argsort(-program.configurations.speed[group.servers])].tolist()
        for server in sorted((s for s in servers if s in usage), key=lambda s: -usage[s]):
            for size in _rest_of_pattern(remaining, usage[server], group.idle):
                slots[size].append(server)
        free = [server for server in servers if server not in usage]
        sorted_patterns = sorted(
            (p for p, count in remaining.items() for _ in range(count)), key=len
        )
        for server, pattern in zip(free, sorted_patterns, strict=False):
            for size in pattern:
                slots[abs(size)].append(server)
    return slots


def _rest_of_pattern(remaining: Counter[Pattern], gpus: int, idle: int) -> Pattern:
    """Use up a pattern that has a spread job's ``gpus`` and return its other slots."""
    slot = gpus if gpus == idle else -gpus
    fitting_patterns = [p for p, count in remaining.items() if count > 0 and slot in p]
    if not fitting_patterns:
        return ()
    pattern = min(fitting_patterns)
    remaining[pattern] -= 1
    remainder = list(pattern)
    remainder.remove(slot)
    return tuple(remainder)


def _best_slot(program: Program, parts: ColumnGroups, column_group: int, slots: list[int]) -> int:
    """Take the slot of the group's most valuable column; -1 if none is left."""
    if not slots:
        return -1
    first, end = int(parts.first[column_group]), int(parts.end[column_group])
    shapes = program.configurations.shapes
    servers = shapes.server[shapes.start[program.configurations.shape[first:end]]]
    positions = np.minimum(np.searchsorted(servers, slots), len(servers) - 1)
    value = np.where(servers[positions] == slots, program.value[first + positions], -np.inf)
    best = int(np.argmax(value))
    if not np.isfinite(value[best]):
        return -1
    slots.pop(best)
    return first + int(positions[best])

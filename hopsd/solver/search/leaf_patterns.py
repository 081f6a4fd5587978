"""Pack jobs that are bound to racks onto leaves, by patterns of what a leaf could hold.

Equally idle servers of a leaf serve such a job alike, so a leaf is a bin of identical servers, and
a job's segments are items of a few sizes. An integer program chooses for every job how it is
divided among leaves, and for every leaf the pattern of parts that it holds (Gilmore and Gomory's
cutting stock): its size does not grow with the number of leaves, and its optimum is close to the
relaxation's. Then patterns are assigned to leaves, and parts to patterns.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.core.placement.rack_sets import RackFamily
from hopsd.model.arrays import Ints
from hopsd.solver.backend.integer_program import Answer, Model
from hopsd.solver.bound.reduced_cost import ItemPrices
from hopsd.solver.bound.unlisted import value_of_sets

# With more patterns than this, the smallest parts are left out.
_MAX_PATTERNS = 20_000
# How many ways to divide a job among leaves are kept, those worth most.
_MAX_WAYS = 12

Solver = Callable[[Model], Answer]


@dataclass(frozen=True, slots=True)
class PackedSet:
    """A set of servers for a job; ``servers`` are ascending."""

    job: int
    sets: RackFamily
    servers: Ints


@dataclass(frozen=True, slots=True)
class _Way:
    """A job divided into ``parts``, servers per leaf; ``worth`` is its value less their price."""

    job: int
    sets: RackFamily
    parts: tuple[int, ...]
    worth: float


def pack(
    program: Program, prices: ItemPrices | None, current: Ints, solver: Solver
) -> list[PackedSet]:
    """Choose sets of servers that are best together, beside the columns ``current`` (jobs,).

    ``prices`` say what servers are worth to other jobs, None that they are worth nothing. Jobs
    whose sets differ in eligible servers or GPUs per server are packed one kind after another.
    """
    kinds: dict[object, list[RackFamily]] = defaultdict(list)
    for sets in program.configurations.families:
        if sets.parts is None:
            per_server = sets.size // sets.count
            kinds[sets.able.servers.tobytes(), per_server].append(sets)
    packing: list[PackedSet] = []
    capacity = program.capacity - program.usage(current)
    placed_jobs = set(np.flatnonzero(current >= 0).tolist())
    for families in sorted(kinds.values(), key=_most_gpus, reverse=True):
        for packed_set in _pack_alike(program, prices, capacity, families, placed_jobs, solver):
            packing.append(packed_set)
            placed_jobs.add(packed_set.job)
            positions = np.searchsorted(packed_set.sets.able.servers, packed_set.servers)
            items = packed_set.sets.whole[positions]
            capacity -= program.configurations.demands.total(items, len(capacity))
    return packing


def _most_gpus(families: Sequence[RackFamily]) -> int:
    return max(sets.size * len(sets.jobs) for sets in families)


def _pack_alike(
    program: Program,
    prices: ItemPrices | None,
    capacity: Ints,
    families: Sequence[RackFamily],
    placed_jobs: set[int],
    solver: Solver,
) -> Iterator[PackedSet]:
    """:func:`pack` for sets over the same servers, with the same count on each."""
    first = families[0]
    free = _free_servers(program, first, capacity)
    if not free:
        return
    caps = np.array([len(servers) for servers in free.values()])
    price = 0.0
    if prices is not None:
        price = float(prices.item[first.whole].mean())
    ways = list(_ways(program, prices, families, placed_jobs, caps, price))
    if not ways:
        return
    sizes, patterns = _patterns({part for way in ways for part in way.parts}, int(caps.max()))
    ways = [way for way in ways if set(way.parts) <= sizes]
    answer = solver(_model(ways, sorted(sizes), patterns, caps))
    if answer.x is None:
        return
    selection = np.round(answer.x).astype(np.int64)
    slots = _deal(patterns, selection[len(ways) :], free)
    selected_ways = [way for way, yes in zip(ways, selection.tolist(), strict=False) if yes]
    for way in sorted(selected_ways, key=lambda way: len(way.parts)):
        parts = _take(way, slots)
        if parts is not None:
            yield PackedSet(way.job, way.sets, np.sort(np.concatenate(parts)))


def _take(way: _Way, slots: dict[int, list[list[int]]]) -> list[list[int]] | None:
    """Remove servers for a job's parts from ``slots``; None if no servers there keep the rules that
    patterns ignore: each part on a leaf of its own, or all below one switch.
    """
    sets, rule = way.sets, way.sets.rule
    if not (rule.spread or rule.consolidate):
        return [slots[part].pop() for part in way.parts]
    position = {server: index for index, server in enumerate(sets.able.servers.tolist())}
    for region in sets.able.regions(rule, sets.count):
        inside, leaves, parts = set(region.tolist()), set[int](), list[tuple[int, int]]()
        for part in way.parts:
            for index, servers in enumerate(slots[part]):
                leaf_position = position[servers[0]]
                leaf = int(sets.able.leaf[leaf_position])
                in_use = leaf in leaves if rule.spread else (part, index) in parts
                if leaf_position in inside and not in_use:
                    leaves.add(leaf)
                    parts.append((part, index))
                    break
        if len(parts) == len(way.parts):
            server_groups = [slots[part][index] for part, index in parts]
            for part, index in sorted(parts, reverse=True):
                del slots[part][index]
            return server_groups
    return None


def _free_servers(program: Program, sets: RackFamily, capacity: Ints) -> dict[int, list[int]]:
    """Return the servers of each leaf that still have room for what the sets take of them."""
    free: dict[int, list[int]] = defaultdict(list)
    fits = program.configurations.demands.fit(capacity)[sets.whole]
    for server, leaf in zip(
        sets.able.servers[fits].tolist(), sets.able.leaf[fits].tolist(), strict=True
    ):
        free[leaf].append(server)
    return free


def _ways(
    program: Program,
    prices: ItemPrices | None,
    families: Sequence[RackFamily],
    placed_jobs: set[int],
    caps: Ints,
    price: float,
) -> Iterator[_Way]:
    """Yield each job's best ways among those worth more than their servers."""
    ways_by_job: dict[int, list[_Way]] = defaultdict(list)
    share = program.configurations.share
    for sets in families:
        divisions = list(_divisions(sets, caps))
        worth = {}
        for kind, leaves in enumerate(sets.leaves.tolist()):
            worth[leaves] = value_of_sets(program, sets, kind)
            if share is not None and prices is not None:
                worth[leaves] -= prices.item[share[sets.columns(kind)]]
        for parts in divisions:
            if len(parts) in worth:
                net = worth[len(parts)] - price * sets.count
                for job, value in zip(sets.jobs.tolist(), net.tolist(), strict=True):
                    if value > 0.0 and job not in placed_jobs:
                        ways_by_job[job].append(_Way(job, sets, parts, value))
    for ways in ways_by_job.values():
        yield from sorted(ways, key=lambda way: -way.worth)[:_MAX_WAYS]


def _divisions(sets: RackFamily, caps: Ints) -> Iterator[tuple[int, ...]]:
    """Yield ways to divide a set's servers among leaves of ``caps``; of many, the most even."""
    unit, groups = sets.unit, sets.groups
    largest = sets.rule.units(sets.count, int(caps.max()))
    max_leaves = min(groups, sets.rule.leaves(sets.count, len(caps)))
    if groups <= _MAX_WAYS:
        for parts in _partitions(groups, max_leaves, largest):
            yield tuple(unit * part for part in parts)
        return
    for leaves in range(-(-groups // largest) if largest else max_leaves + 1, max_leaves + 1):
        quotient, remainder = divmod(groups, leaves)
        yield tuple(unit * (quotient + (leaf < remainder)) for leaf in range(leaves))
        if leaves > 1 and largest * (leaves - 1) < groups:
            yield (*[unit * largest] * (leaves - 1), unit * (groups - largest * (leaves - 1)))


def _partitions(groups: int, max_parts: int, largest: int) -> Iterator[tuple[int, ...]]:
    """Yield partitions of ``groups`` into at most ``max_parts`` parts, none above ``largest``."""
    if not groups:
        yield ()
    elif max_parts:
        for part in range(min(groups, largest), 0, -1):
            for tail in _partitions(groups - part, max_parts - 1, part):
                yield (part, *tail)


def _patterns(sizes: set[int], cap: int) -> tuple[set[int], list[tuple[tuple[int, int], ...]]]:
    """Return sizes, and their patterns ``((size, count), ...)`` that a leaf of ``cap`` holds.

    The smallest sizes are left out as long as there are too many patterns.
    """
    fitting_sizes = sorted((size for size in sizes if size <= cap), reverse=True)
    while _number_of_patterns(fitting_sizes, cap) > _MAX_PATTERNS:
        fitting_sizes.pop()
    return set(fitting_sizes), [pattern for pattern in _grow(fitting_sizes, cap) if pattern]


def _number_of_patterns(sizes: Sequence[int], cap: int) -> int:
    ways = [1] + [0] * cap
    for size in sizes:
        for total in range(size, cap + 1):
            ways[total] += ways[total - size]
    return sum(ways)


def _grow(sizes: Sequence[int], cap: int) -> Iterator[tuple[tuple[int, int], ...]]:
    if not sizes:
        yield ()
        return
    for count in range(cap // sizes[0] + 1):
        for tail in _grow(sizes[1:], cap - count * sizes[0]):
            yield ((sizes[0], count), *tail) if count else tail


def _model(
    ways: Sequence[_Way],
    sizes: Sequence[int],
    patterns: Sequence[tuple[tuple[int, int], ...]],
    caps: Ints,
) -> Model:
    """Build the model. Columns: ways, then patterns. Rows: jobs; sizes, whose parts the patterns
    must hold; and for 1, 2, ... servers, the leaves with at least that many, since every pattern of
    at least that many needs one.
    """
    jobs = {job: row for row, job in enumerate(dict.fromkeys(way.job for way in ways))}
    row_by_size = {size: len(jobs) + position for position, size in enumerate(sizes)}
    first = len(jobs) + len(sizes)
    start, row, factor = [0], [], []
    for way in ways:
        counts = Counter(way.parts)
        row += [jobs[way.job], *(row_by_size[size] for size in counts)]
        factor += [1.0, *map(float, counts.values())]
        start.append(len(row))
    for pattern in patterns:
        total = sum(size * count for size, count in pattern)
        row += [*(row_by_size[size] for size, _ in pattern), *range(first, first + total)]
        factor += [*(-float(count) for _, count in pattern), *[1.0] * total]
        start.append(len(row))
    enough = [float((caps >= cap).sum()) for cap in range(1, int(caps.max()) + 1)]
    worth = np.array([way.worth for way in ways])
    return Model(
        np.concatenate([worth / worth.max(), np.zeros(len(patterns))]),
        np.array(start),
        np.array(row),
        np.array(factor),
        np.array([1.0] * len(jobs) + [0.0] * len(sizes) + enough),
        np.array([1.0] * len(ways) + [float(len(caps))] * len(patterns)),
    )


def _deal(
    patterns: Sequence[tuple[tuple[int, int], ...]], selection: Ints, free: dict[int, list[int]]
) -> dict[int, list[list[int]]]:
    """Assign servers to the parts of the selected patterns, by size. The fullest patterns come
    first, each on the smallest leaf that holds it.
    """
    leaves = sorted(free.values(), key=len)
    slots: dict[int, list[list[int]]] = defaultdict(list)
    patterns_in_use = [
        pattern
        for pattern, count in zip(patterns, selection.tolist(), strict=True)
        for _ in range(count)
    ]
    for pattern in sorted(patterns_in_use, key=_total, reverse=True):
        position = next(
            position for position, servers in enumerate(leaves) if len(servers) >= _total(pattern)
        )
        servers = list(leaves.pop(position))
        for size, count in pattern:
            for _ in range(count):
                slots[size].append(servers[:size])
                del servers[:size]
    return slots


def _total(pattern: tuple[tuple[int, int], ...]) -> int:
    return sum(size * count for size, count in pattern)

"""Cuts from a server's own knapsack of GPUs, cores and memory, for servers short of the last two.

A server's rows limit GPUs, cores and memory one by one, and fractions of jobs can fill all three at
once as no whole jobs can. Assign a value to a few kinds of what jobs take, and let ``V(x)`` be the
most value that whole kinds can have within ``x``. ``V`` is superadditive, so everything that fits
on a server satisfies ``sum V(what each takes) <= V(capacity)``: a valid cut for every kind, whether
it has a value or not (Nemhauser and Wolsey, Integer and combinatorial optimization, chapter
II.1.5). The values are those whose cut a solution of the LP violates most (Fenchel cuts: Boyd, SIAM
J. Optim. 3, 1993).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.core.placement.shapes import ramp
from hopsd.model.arrays import Bools, Floats, Ints, distinct, distinct_rows


@dataclass(frozen=True, slots=True)
class ServerParts:
    """What columns take of single servers: a *part* is a server and what is taken, its *kind*.

    ``server``, ``kind`` (parts,); ``weight`` (kinds, resources) and ``capacity`` (servers,
    resources): GPUs, then the server's other rows. Entry ``e`` says that the item ``item[e]`` of
    the program's demands has the part ``part[e]``; both (entries,), sorted by item.
    """

    server: Ints
    kind: Ints
    weight: Ints
    capacity: Ints
    item: Ints
    part: Ints

    @classmethod
    def from_program(cls, program: Program) -> ServerParts:
        """Collect the parts of all items; limits have none."""
        demands, server = program.configurations.demands, program.configurations.server
        servers = len(program.configurations.pool)
        resource, capacity = rows_of_servers(program)
        items = np.repeat(np.arange(len(demands)), np.diff(demands.start))
        server_entries = np.flatnonzero(server[demands.row] >= 0)
        key_of_entry = items[server_entries] * servers + server[demands.row[server_entries]]
        key = distinct(key_of_entry)
        weight = np.zeros((len(key), capacity.shape[1]), dtype=np.int64)
        np.add.at(
            weight,
            (np.searchsorted(key, key_of_entry), resource[demands.row[server_entries]]),
            demands.amount[server_entries],
        )
        kinds, kind = distinct_rows(weight)
        part_key = (key % servers) * len(kinds) + kind
        part_keys = distinct(part_key)
        part = np.searchsorted(part_keys, part_key)
        number = len(kinds) or 1
        return cls(part_keys // number, part_keys % number, kinds, capacity, key // servers, part)

    def entries(self, items: Ints) -> tuple[Ints, Ints]:
        """Return pairs of a position in ``items`` and a part of that item: (entries,) each."""
        first = np.searchsorted(self.item, items)
        lengths = np.searchsorted(self.item, items, side="right") - first
        return np.repeat(np.arange(len(items)), lengths), np.repeat(first, lengths) + ramp(lengths)


def rows_of_servers(program: Program) -> tuple[Ints, Ints]:
    """Return which resource of its server each row is, (rows,), 0 for GPUs and for limits, and the
    capacities (servers, resources).
    """
    server, servers = program.configurations.server, len(program.configurations.pool)
    order = np.argsort(server, kind="stable")
    first = np.searchsorted(server[order], np.arange(-1, servers))
    rank = np.zeros(len(server), dtype=np.int64)
    rank[order] = np.arange(len(server)) - first[server[order] + 1]
    resource = np.where(server >= 0, rank, 0)
    capacity = np.zeros((servers, int(resource.max(initial=0)) + 1), dtype=np.int64)
    rows = np.flatnonzero(server >= 0)
    capacity[server[rows], resource[rows]] = program.capacity[rows]
    return resource, capacity


@dataclass(frozen=True, slots=True)
class Cuts:
    """``sum factor[c, kind] <= limit[c]`` over all parts that a plan has on ``server[c]``.

    ``server`` and ``limit`` (cuts,), ``factor`` (cuts, kinds). Sorted by server.
    """

    server: Ints
    factor: Floats
    limit: Floats

    def costs(self, parts: ServerParts, prices: Floats) -> Floats:
        """The cost of each item's parts at ``prices`` (cuts,), up to the last item with a part."""
        kind_costs = np.zeros((len(parts.capacity), self.factor.shape[1]))
        np.add.at(kind_costs, self.server, prices[:, None] * self.factor)
        part_costs = kind_costs[parts.server, parts.kind][parts.part]
        return np.bincount(parts.item, part_costs).astype(np.float64)

    def select(self, cuts: Ints) -> Cuts:
        """Keep only ``cuts``, given by number."""
        return Cuts(self.server[cuts], self.factor[cuts], self.limit[cuts])

    @staticmethod
    def join(first: Cuts, second: Cuts) -> tuple[Cuts, Ints]:
        """Join both, sorted; also return each cut's position in their concatenation."""
        server = np.concatenate([first.server, second.server])
        order = np.argsort(server, kind="stable")
        factor = np.concatenate([first.factor, second.factor])
        limit = np.concatenate([first.limit, second.limit])
        return Cuts(server, factor, limit).select(order), order

    @classmethod
    def empty(cls, kinds: int) -> Cuts:
        """No cuts yet."""
        return cls(np.zeros(0, dtype=np.int64), np.zeros((0, kinds)), np.zeros(0))


def patterns(weight: Ints, capacity: Ints, limit: int) -> Ints | None:
    """Return every choice of whole kinds within ``capacity`` (resources,): (patterns, kinds).

    The entries are counts. Every kind of ``weight`` (kinds, resources) has at least one GPU. None
    if there are more than ``limit`` patterns.
    """
    kinds = len(weight)
    counts = [np.zeros((1, kinds), dtype=np.int64)]
    last, free = np.zeros(1, dtype=np.int64), capacity[:, None]
    while len(last):
        children = kinds - last
        parent = np.repeat(np.arange(len(last)), children)
        kind = np.repeat(last, children) + ramp(children)
        child_free = free[:, parent] - weight.T[:, kind]
        fits = np.flatnonzero(np.logical_and.reduce(child_free >= 0))
        if sum(map(len, counts)) + len(fits) > limit:
            return None
        child_counts = counts[-1][parent[fits]]
        child_counts[np.arange(len(fits)), kind[fits]] += 1
        counts.append(child_counts)
        last, free = kind[fits], child_free[:, fits]
    return np.concatenate(counts)


def are_full(counts: Ints, weight: Ints, capacity: Ints) -> Bools:
    """Mark the patterns ``counts`` (patterns, kinds) without room for one more kind: (patterns,).

    ``weight`` (kinds, resources) and ``capacity`` (resources,) are those of the patterns.
    """
    free, full = (capacity - counts @ weight).T, np.ones(len(counts), dtype=np.bool_)
    for kind in weight:
        full &= np.logical_or.reduce(free < kind[:, None])
    return full


def factors(values: Floats, weights: Ints, kinds: Ints) -> Floats:
    """Return ``V`` of every kind, (kinds,): the most value of a pattern no larger than the kind.

    ``values`` (patterns,) and ``weights`` (patterns, resources) describe a server's patterns,
    ``kinds`` (kinds, resources) what the kinds take.
    """
    best = np.zeros(len(kinds))
    order = np.argsort(-values, kind="stable")
    inside = np.logical_and.reduce(
        [least[:, None] <= most for least, most in zip(weights[order].T, kinds.T, strict=True)]
    )
    has_pattern = inside.any(axis=0)
    best[has_pattern] = values[order][inside.argmax(axis=0)[has_pattern]]
    return best

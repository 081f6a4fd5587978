"""Sets of servers for jobs bound to racks: by segments, or by a number of leaf switches.

The servers of such a job need not be neighbours, so there may be very many sets. If there are few,
all are listed. Otherwise a selection is listed: servers that are next to each other among those of
a leaf that have enough GPUs, and leaves next to each other. :mod:`hopsd.solver.racks` prices the
sets that are not listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations
from math import comb, inf

import numpy as np

from hopsd.core.placement.shapes import NO_SHAPES, ShapesOfSize
from hopsd.model.arrays import Bools, Floats, Ints
from hopsd.model.job import Node
from hopsd.model.rules import Rules

MAX_SETS = 4096
"""If there are more sets of one size than this, not all are listed."""

_MANY_SETS = 1e30


@dataclass(frozen=True, slots=True)
class RackRule:
    """Servers come in groups of ``segment`` per leaf; ``max_switches``: maximum number of leaves.

    ``spread``: each group is on a leaf of its own; ``consolidate``: all groups are below one switch
    of the lowest level that could hold them (:class:`Levels`).
    """

    segment: int | None = None
    max_switches: int | None = None
    spread: bool = False
    consolidate: bool = False

    def unit(self, count: int) -> int:
        """Return how many of ``count`` servers share a leaf; 0 if ``count`` is not allowed."""
        if self.segment is None:
            return 1
        if count < self.segment:
            return count
        return 0 if count % self.segment else self.segment

    def units(self, count: int, servers: int) -> int:
        """Return how many units of ``count`` servers a leaf with ``servers`` may hold."""
        units = servers // self.unit(count)
        return min(1, units) if self.spread and self.segment is not None else units

    def leaves(self, count: int, leaves: int) -> int:
        """Return the maximum number of ``leaves`` that ``count`` servers may be on."""
        return min(leaves, count // self.unit(count), self.max_switches or leaves)


def leaf_numbers(nodes: Sequence[Node]) -> Ints:
    """Return a number for each node's leaf, (nodes,)."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(node.leaf, len(numbers)) for node in nodes], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels of switches above the leaves of servers, bottom up.

    ``switch`` (levels, servers): the number of each server's switch on each level; ``largest``
    (levels,): the largest number of servers below a switch; ``leaf``: the largest on a leaf.
    """

    switch: Ints
    largest: Ints
    leaf: int

    @classmethod
    def from_nodes(cls, nodes: Sequence[Node]) -> Levels:
        """Build the levels of the servers of one GPU type.

        A server with fewer levels is below its top switch on all further levels.
        """
        depth = max((len(node.switches) for node in nodes), default=1) - 1
        names = [
            [node.switches[:-level] or node.switches[:1] for node in nodes]
            for level in range(1, depth + 1)
        ]
        switch = [np.unique([*map(repr, row)], return_inverse=True)[1] for row in names]
        return cls(
            np.array(switch, dtype=np.int64).reshape(len(names), len(nodes)),
            np.array([np.bincount(row).max() for row in switch], dtype=np.int64),
            max(Counter(node.leaf for node in nodes).values(), default=0),
        )

    def at(self, servers: Bools | Ints) -> Levels:
        """Return the levels of some of the servers."""
        if not len(self.switch):
            return self
        return Levels(self.switch[:, servers], self.largest, self.leaf)

    def regions(self, rule: RackRule, count: int) -> Ints | None:
        """Return each server's switch on the level where ``count`` servers must share one.

        Returns None if they need not share any.
        """
        if not rule.consolidate or not rule.unit(count) or rule.unit(count) == count:
            return None
        min_servers = count // rule.unit(count) * self.leaf if rule.spread else count
        enough = np.flatnonzero(self.largest >= min_servers)
        return self.switch[enough[0]] if len(enough) else None


NO_LEVELS = Levels(np.zeros((0, 0), dtype=np.int64), np.zeros(0, dtype=np.int64), 0)


def leaves_of(leaf: Ints, servers: Ints) -> Ints:
    """Return the number of leaves of each set of ``servers`` (n, d): (n,). ``leaf``: by server."""
    leaves = np.sort(leaf[servers], axis=1)
    count: Ints = 1 + (np.diff(leaves, axis=1) > 0).sum(axis=1)
    return count


def union(left_shapes: ShapesOfSize, right_shapes: ShapesOfSize) -> ShapesOfSize:
    """Return the shapes of both, each once."""
    servers = np.concatenate([left_shapes.servers, right_shapes.servers])
    _, first = np.unique(servers, axis=0, return_index=True)
    gpus = np.concatenate([left_shapes.gpus, right_shapes.gpus])
    return ShapesOfSize(servers[first], gpus[first])


def keeps_racks(rules: Rules, leaves: Sequence[str], levels: Levels = NO_LEVELS) -> bool:
    """Whether servers, one on each of ``leaves``, comply with a job's segments and switches.

    ``levels``: the levels above the same servers.
    """
    counts = Counter(leaves)
    if rules.max_switches is not None and len(counts) > rules.max_switches:
        return False
    if rules.segment is None:
        return True
    if len(leaves) < rules.segment:
        return len(counts) == 1
    if any(count % rules.segment for count in counts.values()):
        return False
    if rules.spread_segments and any(count > rules.segment for count in counts.values()):
        return False
    regions = levels.regions(rack_rule(rules), len(leaves))
    return regions is None or len(np.unique(regions)) == 1


def rack_rule(rules: Rules) -> RackRule:
    """Return the part of the rules that is about racks."""
    return RackRule(
        rules.segment, rules.max_switches, rules.spread_segments, rules.consolidate_segments
    )


@dataclass(frozen=True, slots=True)
class LeafServers:
    """The servers of one GPU type that a job may use, in node order.

    ``servers``, ``idle``, ``leaf`` (servers,): the numbers of the servers, the GPUs that the job
    could take on each, and the numbers of their leaves. ``levels``: those above the leaves.
    """

    servers: Ints
    idle: Ints
    leaf: Ints
    levels: Levels = NO_LEVELS

    def with_at_least(self, gpus: int) -> LeafServers:
        """Return only the servers on which the job could take ``gpus``."""
        return self.only(self.idle >= gpus)

    def only(self, selection: Bools | Ints) -> LeafServers:
        """Return some of the servers."""
        return LeafServers(
            self.servers[selection],
            self.idle[selection],
            self.leaf[selection],
            self.levels.at(selection),
        )

    def regions(self, rule: RackRule, count: int) -> list[Ints]:
        """Return the positions of servers by region; ``count`` servers must be in the same one."""
        regions = self.levels.regions(rule, count)
        if regions is None:
            return [np.arange(len(self.servers))]
        return [np.flatnonzero(regions == number) for number in np.unique(regions)]

    def by_leaf(self) -> list[Ints]:
        """Return the positions of each leaf's servers."""
        order = np.argsort(self.leaf, kind="stable")
        heads = np.flatnonzero(np.diff(self.leaf[order])) + 1
        return np.split(order, heads) if len(order) else []


@dataclass(frozen=True, slots=True)
class RackSets:
    """Shapes over the same number of servers; ``complete``: whether these are all there are."""

    shapes: ShapesOfSize
    complete: bool = True


@dataclass(frozen=True, slots=True)
class RackFamily:
    """Sets of ``count`` servers with ``size`` GPUs in all, for ``jobs``.

    The sets of ``listed_shapes`` are columns; those of job ``jobs[i]`` are ``first[i]`` and the
    following. ``complete``: there are no other sets.

    ``leaves`` (n,): the numbers of leaves that sets may span; ``example`` (n,): a listed set that
    spans each number, or about as many. ``headroom`` (jobs, n): how much faster than on the example
    a job could be with that number of leaves. ``able``: the servers that may be part of a set;
    ``whole`` (servers,): the item of the program's demands for each server. If ``parts`` is given,
    sets are uneven: the last server provides fewer GPUs, with the items ``parts`` (server by
    server) for 1, 2, ... GPUs. ``slowest`` (jobs,): the smallest throughput with any set, ``inf``
    if unknown.
    """

    key: Hashable
    jobs: Ints
    first: Ints
    rule: RackRule
    count: int
    size: int
    listed_shapes: ShapesOfSize
    leaves: Ints
    example: Ints
    headroom: Floats
    able: LeafServers
    whole: Ints
    parts: Ints | None
    complete: bool
    slowest: Floats

    @property
    def unit(self) -> int:
        """Number of servers that share a leaf."""
        return self.rule.unit(self.count)

    @property
    def groups(self) -> int:
        """Number of units."""
        return self.count // self.unit

    def columns(self, kind: int) -> Ints:
        """Return each job's listed column on ``leaves[kind]`` leaves, (jobs,)."""
        columns: Ints = self.first + self.example[kind]
        return columns

    def find(self, servers: Ints) -> int:
        """Return the position of a set of servers among the listed ones, -1 if it is not listed."""
        matches = np.flatnonzero((self.listed_shapes.servers == servers).all(axis=1))
        return int(matches[0]) if len(matches) else -1


NO_SETS = RackSets(NO_SHAPES)


def even_sets(servers: LeafServers, size: int, per_node: int | None, rule: RackRule) -> RackSets:
    """Return sets of the fewest servers (2 or more) with equal counts, ``per_node`` if given."""
    for eligible, count in _even(servers, size, per_node, rule):
        positions, complete = _sets(rule, count, eligible)
        gpus = np.full(positions.shape, size // count)
        return RackSets(_sorted_shapes(eligible.servers[positions], gpus), complete)
    return NO_SETS


def _even(
    servers: LeafServers, size: int, per_node: int | None, rule: RackRule
) -> Iterator[tuple[LeafServers, int]]:
    """Yield the numbers of servers that could have equal counts, and the servers with enough."""
    if per_node is None:
        max_servers = min(size, len(servers.servers))
        counts = [count for count in range(2, max_servers + 1) if size % count == 0]
    else:
        counts = [size // per_node] if 2 * per_node <= size and size % per_node == 0 else []
    for count in counts:
        eligible = servers.with_at_least(size // count)
        regions = map(eligible.only, eligible.regions(rule, count))
        if any(_hold(rule, count, [len(leaf) for leaf in part.by_leaf()]) for part in regions):
            yield eligible, count


def filled_sets(servers: LeafServers, size: int, rule: RackRule) -> RackSets:
    """Return sets of the fewest servers, two or more.

    In node order, each server but the last provides all of its GPUs.
    """
    for eligible, count in _filled_servers(servers, size, rule):
        positions, complete = _sets(rule, count, eligible, is_uneven=True)
        gpus = eligible.idle[positions]
        before = gpus[:, :-1].sum(axis=1)
        fills = (before < size) & (before + gpus[:, -1] >= size)
        if fills.any():
            gpus[:, -1] = size - before
            return RackSets(
                _sorted_shapes(eligible.servers[positions[fills]], gpus[fills]), complete
            )
        if not complete and rule.segment is None:
            break  # Some set of this many servers is not listed, and larger sets are not allowed.
    return NO_SETS


def _filled_servers(
    servers: LeafServers, size: int, rule: RackRule
) -> Iterator[tuple[LeafServers, int]]:
    """Yield the numbers of servers that could have ``size`` GPUs, and the servers with any."""
    eligible = servers.with_at_least(1)
    min_servers = -(-size // int(eligible.idle.max(initial=1)))
    for count in range(max(2, min_servers), min(size, len(eligible.servers)) + 1):
        regions = map(eligible.only, eligible.regions(rule, count))
        if any(_could_fill(rule, count, part.by_leaf(), part.idle, size) for part in regions):
            yield eligible, count


def any_even_sets(servers: LeafServers, size: int, per_node: int | None, rule: RackRule) -> bool:
    """Whether :func:`even_sets` would find any."""
    return any(True for _ in _even(servers, size, per_node, rule))


def any_filled_sets(servers: LeafServers, size: int, rule: RackRule) -> bool:
    """Whether :func:`filled_sets` would find any."""
    if rule.segment is None:
        return any(True for _ in _filled_servers(servers, size, rule))
    return bool(len(filled_sets(servers, size, rule).shapes))


def can_span(rule: RackRule, count: int, eligible: LeafServers, leaves: Ints) -> Bools:
    """Return whether each server can be in an even set on exactly ``leaves`` (n,): (servers, n)."""
    spans = np.zeros((len(eligible.servers), len(leaves)), dtype=np.bool_)
    for region in eligible.regions(rule, count):
        spans[region] = _can_span(rule, count, eligible.only(region), leaves)
    return spans


def _can_span(rule: RackRule, count: int, eligible: LeafServers, leaves: Ints) -> Bools:
    """Compute :func:`can_span` within one region."""
    unit, groups = rule.unit(count), eligible.by_leaf()
    holds = np.array([rule.units(count, len(group)) * unit for group in groups])
    order = np.argsort(-holds, kind="stable")
    rank = np.argsort(order)
    cumulative_sums = np.append(0, np.cumsum(holds[order]))
    spans = np.zeros((len(eligible.servers), len(leaves)), dtype=np.bool_)
    for position, number in enumerate(leaves[leaves <= len(groups)].tolist()):
        # What the largest other leaves hold; the leaf itself may be among the largest.
        other_leaves = np.where(
            rank >= number - 1, cumulative_sums[number - 1], cumulative_sums[number] - holds
        )
        smallest = holds[order[number - 1]]
        fits = (holds >= unit) & (smallest >= unit) & (holds + other_leaves >= count)
        for group, yes in zip(groups, (fits & (number * unit <= count)).tolist(), strict=True):
            spans[group, position] = yes
    return spans


def _sorted_shapes(servers: Ints, gpus: Ints) -> ShapesOfSize:
    order = np.lexsort(servers.T[::-1])
    return ShapesOfSize(servers[order], gpus[order])


def _hold(rule: RackRule, count: int, sizes: Sequence[int]) -> bool:
    """Whether leaves with ``sizes`` servers each hold a set of ``count``."""
    unit = rule.unit(count)
    if not unit:
        return False
    groups = sorted((rule.units(count, servers) for servers in sizes), reverse=True)
    return sum(groups[: rule.leaves(count, len(sizes))]) >= count // unit


def _could_fill(rule: RackRule, count: int, groups: Sequence[Ints], idle: Ints, size: int) -> bool:
    """Whether some set of ``count`` servers has ``size`` GPUs."""
    if not _hold(rule, count, [len(group) for group in groups]):
        return False
    unit = rule.unit(count)
    best = [
        np.sort(idle[group])[::-1].cumsum()[unit - 1 :: unit][: rule.units(count, len(group))]
        for group in groups
    ]
    leaves = rule.leaves(count, len(groups))
    return _max_gain(best, count // unit, leaves) >= size


def _max_gain(by_groups: Sequence[Floats], groups: int, leaves: int) -> float:
    """Return the largest sum over at most ``leaves`` leaves that provide ``groups`` in all.

    ``by_groups``: what each leaf provides with 1, 2, ... groups; each group adds at most as much as
    the previous one.
    """
    if leaves >= min(groups, len(by_groups)):
        gains = np.concatenate([np.diff(values, prepend=0.0) for values in by_groups])
        return float(np.sort(gains)[::-1][:groups].sum())
    best = np.full((leaves + 1, groups + 1), -inf)
    best[0, 0] = 0.0
    for leaf_values in by_groups:
        before = best.copy()
        for count, value in enumerate(leaf_values[:groups].tolist(), 1):
            np.maximum(
                best[1:, count:], before[:-1, : groups + 1 - count] + value, out=best[1:, count:]
            )
    return float(best[1:, groups].max())


def _sets(
    rule: RackRule, count: int, eligible: LeafServers, *, is_uneven: bool = False
) -> tuple[Ints, bool]:
    """Return sets as positions (sets, count), each ascending, and whether these are all sets."""
    position_sets, complete = [np.zeros((0, count), dtype=np.int64)], True
    for region in eligible.regions(rule, count):
        part = eligible.only(region)
        idle = part.idle.tobytes() if is_uneven else b""
        sets, all_of_them = _positions(rule, count, part.leaf.tobytes(), idle, MAX_SETS)
        position_sets.append(region[sets])
        complete = complete and all_of_them
    return np.concatenate(position_sets), complete


@lru_cache(maxsize=128)
def _positions(
    rule: RackRule, count: int, leaf: bytes, idle: bytes, limit: int
) -> tuple[Ints, bool]:
    """Compute up to about ``limit`` sets for :func:`_sets` from the leaves of servers.

    The result is cached, since a plan needs it twice, and so does the next round.
    """
    leaves = np.frombuffer(leaf, dtype=np.int64)
    groups = LeafServers(leaves, leaves, leaves).by_leaf()
    if _number(rule, count, [len(group) for group in groups], limit) <= limit:
        positions = np.array(list(_every_choice(rule, count, groups)), dtype=np.int32).reshape(
            -1, count
        )
        return np.sort(positions, axis=1), True
    idle_gpus = np.frombuffer(idle, dtype=np.int64) if idle else None
    if idle_gpus is not None:  # The servers with the most GPUs come first, so that few suffice.
        groups = [group[np.argsort(-idle_gpus[group], kind="stable")] for group in groups]
    tries = list(_sample_choices(rule, count, groups, limit))
    if idle_gpus is not None:
        tries.append(_fullest(rule, count, groups, idle_gpus))
    positions = np.array([choice for choice in tries if choice], dtype=np.int32).reshape(-1, count)
    return np.unique(np.sort(positions, axis=1), axis=0), False


def _number(rule: RackRule, count: int, sizes: Sequence[int], enough: int) -> float:
    """Return the number of sets of ``count`` servers, approximately if it exceeds ``enough``."""
    unit, leaves = rule.unit(count), rule.leaves(count, len(sizes))
    groups = count // unit
    ways = np.zeros((leaves + 1, groups + 1))
    ways[0, 0] = 1.0
    for servers in sizes:
        before = ways.copy()
        for number in range(1, min(groups, rule.units(count, servers)) + 1):
            combinations = float(min(comb(servers, number * unit), int(_MANY_SETS)))
            ways[1:, number:] += before[:-1, : groups + 1 - number] * combinations
        np.minimum(ways, _MANY_SETS, out=ways)
        if ways[1:, groups].sum() > enough:
            break
    return float(ways[1:, groups].sum())


def _every_choice(rule: RackRule, count: int, groups: Sequence[Ints]) -> Iterator[list[int]]:
    unit, max_leaves = rule.unit(count), rule.leaves(count, len(groups))
    # How many servers the largest 0, 1, ... leaves hold, among those from each leaf on.
    sizes = [rule.units(count, len(group)) * unit for group in groups]
    hold = [
        np.append(0, np.cumsum(sorted(sizes[start:], reverse=True)))[: max_leaves + 1].tolist()
        for start in range(len(groups) + 1)
    ]

    def grow(group: int, missing: int, leaves: int) -> Iterator[list[int]]:
        if not missing:
            yield []
        elif missing <= hold[group][min(leaves, len(hold[group]) - 1)]:
            yield from grow(group + 1, missing, leaves)
            members = groups[group].tolist()
            for amount in range(unit, min(missing, sizes[group]) + 1, unit):
                for tail in grow(group + 1, missing - amount, leaves - 1):
                    for selection in combinations(members, amount):
                        yield [*selection, *tail]

    return grow(0, count, max_leaves)


def _sample_choices(
    rule: RackRule, count: int, groups: Sequence[Ints], windows_max: int
) -> Iterator[list[int]]:
    """Yield sets of servers next to each other in one leaf, and sets over several leaves.

    The latter start at each leaf and continue with the leaves that follow, or with the largest.
    """
    unit, max_leaves = rule.unit(count), rule.leaves(count, len(groups))
    lists = [group.tolist() for group in groups]
    windows = sum(max(0, len(leaf) - count + 1) for leaf in lists)
    step = max(1, -(-windows // max(1, windows_max)))
    for leaf in lists:
        if rule.units(count, len(leaf)) * unit >= count:
            for first in range(0, len(leaf) - count + 1, step):
                yield leaf[first : first + count]
    if max_leaves < 2:
        return
    # Yield one set for each possible number of leaves.
    for number in range(2, max_leaves + 1):
        wide = _wide(lists, count, rule, number)
        if wide:
            yield wide
    large = sorted((leaf for leaf in lists if len(leaf) >= unit), key=len, reverse=True)
    for position, leaf in enumerate(lists):
        for other_leaves in (lists[position + 1 :] + lists[:position], large):
            for ends in (False, True):
                choice = _choose_across(leaf, other_leaves, count, rule, max_leaves, ends=ends)
                if choice:
                    yield choice


def _fullest(rule: RackRule, count: int, groups: Sequence[Ints], idle: Ints) -> list[int]:
    """Return the servers with the most GPUs, adding leaf by leaf; empty if segments forbid it."""
    if rule.unit(count) != 1 or rule.spread:
        return []
    best: list[int] = []
    leaves: list[Ints] = []
    for _ in range(rule.leaves(count, len(groups))):
        tries = [np.concatenate([*leaves, group]) for group in groups]
        tries = [group[np.argsort(-idle[group], kind="stable")[:count]] for group in tries]
        fullest = int(np.argmax([idle[group].sum() for group in tries]))
        leaves.append(groups[fullest])
        best = tries[fullest].tolist()
        groups = [*groups[:fullest], *groups[fullest + 1 :]]
    return best if len(best) == count else []


def _wide(lists: Sequence[list[int]], count: int, rule: RackRule, leaves: int) -> list[int] | None:
    """Return ``count`` servers on exactly ``leaves`` of the largest leaves, if possible."""
    unit = rule.unit(count)
    largest = sorted(lists, key=len, reverse=True)[:leaves]
    missing = count - unit * leaves
    if missing < 0 or len(largest) < leaves or len(largest[-1]) < unit:
        return None
    choice: list[int] = []
    for leaf in largest:
        extra = min(missing, (rule.units(count, len(leaf)) - 1) * unit)
        choice += leaf[: unit + extra]
        missing -= extra
    return None if missing else choice


def _choose_across(
    first_leaf: list[int],
    other_leaves: Sequence[list[int]],
    count: int,
    rule: RackRule,
    max_leaves: int,
    *,
    ends: bool,
) -> list[int] | None:
    """Return ``count`` servers from a leaf and then others, each providing as many as it can."""
    unit = rule.unit(count)
    choice: list[int] = []
    leaves = 0
    for leaf in chain(
        (first_leaf,), (candidate for candidate in other_leaves if candidate is not first_leaf)
    ):
        amount = min(count - len(choice), rule.units(count, len(leaf)) * unit) // unit * unit
        if amount:
            choice += leaf[-amount:] if ends else leaf[:amount]
            leaves += 1
        if len(choice) == count or leaves == max_leaves:
            break
    return choice if len(choice) == count else None

"""Programs that list further sets of servers of rack-bound jobs, and what that does to columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np

from hopsd.core.placement.configurations import Configurations
from hopsd.core.placement.program import Program
from hopsd.core.placement.rack_sets import RackFamily, union
from hopsd.core.placement.shapes import ShapesOfSize
from hopsd.model.arrays import Ints

Sets = Mapping[Hashable, ShapesOfSize]
"""Sets of servers by the key of their family."""

Listing = Callable[[Sets], Program]
"""Builds the program that also lists the given sets."""

FoundSet = tuple[RackFamily, Ints]
"""A family, and the servers, ascending, of one of its sets."""


def with_sets(sets: Sets, found_sets: Sequence[FoundSet]) -> dict[Hashable, ShapesOfSize]:
    """Return ``sets`` and the ``found_sets``, each once."""
    servers_by_key: dict[Hashable, list[Ints]] = defaultdict(list)
    counts: dict[Hashable, int] = {}
    for family, servers in found_sets:
        servers_by_key[family.key].append(servers)
        counts[family.key] = family.size // family.count
    all_sets = dict(sets)
    for key, rows in servers_by_key.items():
        distinct = np.unique(np.stack(rows), axis=0)
        shapes = ShapesOfSize(distinct, np.full(distinct.shape, counts[key]))
        all_sets[key] = union(all_sets[key], shapes) if key in all_sets else shapes
    return all_sets


def renumber_choice(before: Configurations, after: Configurations, choice: Ints) -> Ints:
    """Translate the columns of ``choice`` (jobs,), -1 for none, as :func:`renumber` does."""
    renumbered, placed = choice.copy(), choice >= 0
    renumbered[placed] = renumber(before, after, choice[placed])
    return renumbered


def renumber(before: Configurations, after: Configurations, columns: Ints) -> Ints:
    """Translate ``columns`` to those of configurations that list more sets."""
    job = before.jobs_of(columns)
    renumbered = after.start[job] + columns - before.start[job]
    families_after = {family.key: family for family in after.families}
    in_family = np.zeros(before.jobs, dtype=np.bool_)
    is_set = np.zeros(len(columns), dtype=np.bool_)
    for family in before.families:
        counterpart = families_after[family.key]
        in_family[family.jobs] = True
        first = np.full(before.jobs, np.iinfo(np.int64).max)
        first[family.jobs] = family.first
        offset = columns - first[job]
        listed = np.flatnonzero((offset >= 0) & (offset < len(family.listed_shapes)))
        positions, inverse = np.unique(offset[listed], return_inverse=True)
        found = [counterpart.find(family.listed_shapes.servers[p]) for p in positions.tolist()]
        first[family.jobs] = counterpart.first
        renumbered[listed] = first[job[listed]] + np.array(found, dtype=np.int64)[inverse]
        is_set[listed] = True
    # After a job's sets comes only where it runs now: those columns stay last.
    last = np.flatnonzero(in_family[job] & ~is_set)
    renumbered[last] = after.start[job[last] + 1] - (before.start[job[last] + 1] - columns[last])
    return renumbered

"""A bound for servers that are alike and short of cores or memory, from patterns of their jobs.

A *kind* is what a job takes of one server: GPUs, cores, memory. Servers of one type with equal
free amounts form a class; a pattern is a set of whole kinds that fits on one of them. Columns of a
job that take the same kinds, on whichever servers, are one *option*. An integer program chooses
options and, for each class, how many servers get each pattern, so that the patterns hold what the
options take: Gilmore and Gomory's cutting stock (Operations Research 9, 1961) with several
resources. Every plan is one of its solutions. On 600 GPUs in servers of 4, CBC comes within 0.1 %
of its optimum in 0.1 to 0.4 CPU s; linear programs with cuts prove up to 1 % less in 20.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.core.placement.rack_sets import can_span
from hopsd.core.placement.shapes import ramp
from hopsd.model.arrays import Floats, Ints, distinct_rows
from hopsd.solver.backend.integer_program import Answer, Model
from hopsd.solver.bound.knapsack_cuts import ServerParts, are_full, patterns
from hopsd.solver.bound.unlisted import value_of_sets

# With more choices of kinds for one class, full ones or not, CBC takes seconds.
_MAX_PATTERNS = 50_000


def bound_by_kinds(program: Program, solver: Callable[[Model], Answer]) -> float:
    """Return an upper bound on every plan, including plans that use unlisted sets of servers.

    ``inf`` if a class has too many patterns, if unlisted sets could take kinds that the listed ones
    do not, or if columns are not written out.
    """
    if program.configurations.segments is not None or not len(program.value):
        return inf
    kinds = _Kinds.from_program(program)
    options = _Options.from_program(program, kinds)
    if options is None:
        return inf
    classes, size = np.unique(
        np.column_stack([program.configurations.pool, kinds.capacity]), axis=0, return_counts=True
    )
    class_patterns = []
    for pool, *capacity in classes.tolist():
        patterns_held = _full_patterns(kinds, pool, capacity)
        if patterns_held is None:
            return inf
        class_patterns.append(patterns_held)
    model, unit = _model(program, kinds, options, class_patterns, size)
    return solver(model).bound * unit


@dataclass(frozen=True, slots=True)
class _Kinds:
    """What a program's items take of single servers.

    ``pool`` (kinds,), ``weight`` (kinds, resources); ``capacity`` (servers, resources). Row
    ``together[bundle[i]]`` lists the kinds of item ``i``, each as often as it is taken, padded
    with -1 on the left.
    """

    pool: Ints
    weight: Ints
    capacity: Ints
    bundle: Ints
    together: Ints

    @classmethod
    def from_program(cls, program: Program) -> _Kinds:
        parts, columns = ServerParts.from_program(program), program.configurations
        keys = np.stack([columns.pool[parts.server], parts.kind])
        (pool, number), kind = np.unique(keys, axis=1, return_inverse=True)
        item, kind = parts.item, kind.ravel()[parts.part]
        kind = kind[np.lexsort((kind, item))]
        lengths = np.bincount(item, minlength=len(columns.demands))
        table = np.full((len(lengths), int(lengths.max())), -1, dtype=np.int64)
        table[item, table.shape[1] - lengths[item] + ramp(lengths)] = kind
        together, bundle = distinct_rows(table)
        return cls(pool, parts.weight[number], parts.capacity, bundle, together)


@dataclass(frozen=True, slots=True)
class _Options:
    """Each option's ``job``, kinds ``together``, largest ``value`` and one ``column``, all
    (options,).
    """

    job: Ints
    together: Ints
    value: Floats
    column: Ints

    @classmethod
    def from_program(cls, program: Program, kinds: _Kinds) -> _Options | None:
        """Return the options of all columns; None if unlisted sets could form other options."""
        columns = program.configurations
        numbers = np.arange(len(columns))
        job = columns.jobs_of(numbers)
        key = job * len(kinds.together) + kinds.bundle[columns.shape[numbers]]
        best = np.lexsort((-program.value, key))
        keys, first = np.unique(key[best], return_index=True)
        column = best[first]
        job, together = np.divmod(keys, len(kinds.together))
        options = cls(job, together, program.value[column], column)
        for sets in columns.families:
            if sets.complete:
                continue
            whole = kinds.together[kinds.bundle[sets.whole]]
            if sets.parts is not None or np.any(whole != whole[0]):
                return None
            key = kinds.bundle[columns.shape[sets.columns(0)]] + sets.jobs * len(kinds.together)
            positions = np.searchsorted(keys, key)
            spans = can_span(sets.rule, sets.count, sets.able, sets.leaves).any(axis=0)
            for number in np.flatnonzero(spans).tolist():
                np.maximum.at(options.value, positions, value_of_sets(program, sets, number))
        return options


def _full_patterns(kinds: _Kinds, pool: int, capacity: list[int]) -> Ints | None:
    """Return one class's maximal patterns, (patterns, kinds); None if there are too many."""
    is_held = (kinds.pool == pool) & np.all(kinds.weight <= capacity, axis=1)
    held = np.flatnonzero(is_held & (kinds.weight[:, 0] > 0))
    weight, free = kinds.weight[held], np.array(capacity)
    counts = patterns(weight, free, _MAX_PATTERNS)
    if counts is None:
        return None
    full = counts[are_full(counts, weight, free)]
    counts_by_kind = np.zeros((len(full), len(kinds.pool)), dtype=np.int64)
    counts_by_kind[:, held] = full
    return counts_by_kind


def _model(
    program: Program, kinds: _Kinds, options: _Options, class_patterns: list[Ints], size: Ints
) -> tuple[Model, float]:
    """Build the integer program; also return the unit of its objective. Columns: options, then
    patterns. Rows: jobs, kinds, classes of ``size`` (classes,) servers each, limits.
    """
    columns, count = program.configurations, len(options.job)
    limits = np.flatnonzero(columns.server < 0)
    first_kind = columns.jobs
    first_class = first_kind + len(kinds.pool)
    first_limit = first_class + len(class_patterns)
    taken = kinds.together[options.together]
    option, place = np.nonzero((taken >= 0) & (kinds.weight[taken, 0] > 0))
    number = [np.arange(count), option]
    row = [options.job, first_kind + taken[option, place]]
    factor = [np.ones(count), np.ones(len(option))]
    if columns.share is not None:
        shares = columns.share[options.column].astype(np.int64)
        lengths, entry = columns.demands.entries(shares)
        number.append(np.repeat(np.arange(count), lengths))
        row.append(first_limit + np.searchsorted(limits, columns.demands.row[entry]))
        factor.append(columns.demands.amount[entry].astype(np.float64))
    counts = np.concatenate(class_patterns)
    class_of = np.repeat(np.arange(len(class_patterns)), [len(held) for held in class_patterns])
    pattern, kind = np.nonzero(counts)
    number += [count + pattern, count + np.arange(len(counts))]
    row += [first_kind + kind, first_class + class_of]
    factor += [-counts[pattern, kind].astype(np.float64), np.ones(len(counts))]
    rows = first_limit + len(limits)
    entries = np.concatenate(number) * rows + np.concatenate(row)
    entries, same = np.unique(entries, return_inverse=True)
    factors = np.bincount(same.ravel(), np.concatenate(factor)).astype(np.float64)
    entries, factors = entries[factors != 0.0], factors[factors != 0.0]
    unit = float(options.value.max())
    model = Model(
        np.concatenate([options.value / unit, np.zeros(len(counts))]),
        np.searchsorted(entries, rows * np.arange(count + len(counts) + 1)),
        entries % rows,
        factors,
        np.concatenate(
            [np.ones(columns.jobs), np.zeros(len(kinds.pool)), size, program.capacity[limits]]
        ),
        np.concatenate([np.ones(count), size[class_of]]),
    )
    return model, unit

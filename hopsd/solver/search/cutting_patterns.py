"""The class program: identical servers form a class and are filled by patterns of job sizes.

With all servers idle, the program as written has thousands of columns that differ only in the
server, and branching among them never ends. Here a job takes a *slot*, a size on a GPU type, and a
pattern says which slots a server offers: 8 GPUs as 8, as 5+3, as 4+2+2, ... Server factors are
replaced by their mean. A job spread over ``d`` servers takes ``d - 1`` full slots and an *end* for
the rest, as its shape does if all servers of the type are equally idle. Shapes fill neighbours in
node order, so no server holds the ends of two jobs: with patterns that let two ends share one, up
to an eighth of a class plan's jobs had no servers (512 GPUs). Two even shapes could share their
servers (4+4 on servers of 8); patterns keep them apart, so such plans hold fewer jobs than they
could.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.model.arrays import Floats, Ints
from hopsd.solver.backend.integer_program import Answer, Model, chosen_columns
from hopsd.solver.bound.column_groups import ColumnGroups

_GROUPS_PER_JOB = 12
# A server of 8 GPUs has 22 patterns, one of 16 has 231: other methods plan larger servers.
_MAX_PATTERN_GPUS = 16

Pattern = tuple[int, ...]
"""The slots of a server; at most one is negative, the end of a spread job."""


@dataclass(frozen=True, slots=True)
class ServerClass:
    """``servers`` of one GPU type (``pool``) with ``idle`` GPUs each."""

    pool: int
    idle: int
    servers: Ints


@dataclass(frozen=True, slots=True)
class ClassProgram:
    """The model; its columns are the column groups ``columns``, then the classes' ``patterns``."""

    model: Model
    columns: Ints
    classes: tuple[ServerClass, ...]
    patterns: tuple[tuple[int, Pattern], ...]


@dataclass(frozen=True, slots=True)
class ClassPlan:
    """A solved class program: the chosen column groups, and each class's servers per pattern."""

    column_groups: Ints
    bins: tuple[tuple[ServerClass, Counter[Pattern]], ...]


@cache
def partitions(gpus: int, largest: int) -> tuple[Pattern, ...]:
    """Return all ways to fill a server of ``gpus`` with slots up to ``largest``, descending."""
    if gpus == 0:
        return ((),)
    return tuple(
        (slot, *tail)
        for slot in range(min(gpus, largest), 0, -1)
        for tail in partitions(gpus - slot, slot)
    )


def _patterns(gpus: int, ends: Iterable[int]) -> Iterator[Pattern]:
    """Yield all ways to fill a server of ``gpus``, without an end and with one of ``ends``."""
    yield from partitions(gpus, gpus)
    for end in ends:
        for slots in partitions(gpus - end, gpus - end) if end < gpus else ():
            yield -end, *slots


def classes_of(program: Program) -> tuple[ServerClass, ...]:
    """Group the servers with idle GPUs into classes by GPU type and number of idle GPUs."""
    pool, idle = program.configurations.pool, program.idle
    kinds = sorted({(int(p), int(s)) for p, s in zip(pool, idle, strict=True) if s > 0})
    return tuple(ServerClass(p, s, np.flatnonzero((pool == p) & (idle == s))) for p, s in kinds)


def equally_idle(classes: tuple[ServerClass, ...]) -> bool:
    """Whether all servers of a type that have idle GPUs have the same number of them."""
    return len(classes) == len({group.pool for group in classes})


def ends_could_share(
    program: Program, parts: ColumnGroups, classes: tuple[ServerClass, ...]
) -> bool:
    """Whether a server has room for the ends of two equal shapes, which no pattern allows.

    A placement that only a running job has, left over from fuller servers, does not count.
    """
    usual = usual_idle(classes)
    idle = np.array([usual.get(pool, 0) for pool in parts.pool.tolist()], dtype=np.int64)
    left_over = (parts.end - parts.first == 1) & np.isin(
        parts.first, program.configurations.present
    )
    # Shapes that fill servers take more than half of them.
    even = (parts.servers > 1) & (2 * parts.size <= idle * parts.servers)
    return bool(np.any(even & ~left_over))


def usual_idle(classes: tuple[ServerClass, ...]) -> dict[int, int]:
    """Return the most common number of idle GPUs per server, by GPU type."""
    largest: dict[int, ServerClass] = {}
    for group in classes:
        previous = largest.get(group.pool)
        if previous is None or len(group.servers) >= len(previous.servers):
            largest[group.pool] = group
    return {pool: group.idle for pool, group in largest.items()}


def class_program(program: Program, parts: ColumnGroups, prices: Floats) -> ClassProgram | None:
    """Build the class program over each job's best column groups at ``prices`` (servers,); None if
    it is too large.
    """
    classes = classes_of(program)
    if not classes or max(group.idle for group in classes) > _MAX_PATTERN_GPUS:
        return None
    builder = _Builder(classes, int(program.idle.max()))
    usual = usual_idle(classes)
    pool_price = np.array(
        [prices[program.configurations.pool == p].mean() for p in range(max(usual) + 1)]
    )
    groups = []
    for column_group in _promising_columns(parts, pool_price):
        pool, column = int(parts.pool[column_group]), int(parts.first[column_group])
        slots = _slots([gpus for _, gpus in program.gpus_on(column)], usual.get(pool, 0))
        if slots is not None:
            limits = _limits(program, column)
            job, value = int(parts.job[column_group]), float(parts.mean[column_group])
            builder.add_job(job, pool, slots, limits, value)
            groups.append(int(column_group))
    patterns = [
        (number, pattern)
        for number, group in enumerate(classes)
        for pattern in _patterns(group.idle, builder.ends(group.pool))
    ]
    for number, pattern in patterns:
        builder.add_pattern(number, pattern)
    return ClassProgram(builder.model(), np.array(groups), classes, tuple(patterns))


def _promising_columns(parts: ColumnGroups, pool_price: Floats) -> Ints:
    """Return each job's column groups with the largest profit, in order."""
    profit = parts.mean - pool_price[np.minimum(parts.pool, len(pool_price) - 1)] * parts.size
    order = np.lexsort((-profit, parts.job))
    job = parts.job[order]
    first = np.flatnonzero(np.append(True, job[1:] != job[:-1]))
    rank = np.arange(len(job)) - np.repeat(first, np.diff(np.append(first, len(job))))
    return np.sort(order[rank < _GROUPS_PER_JOB])


def _slots(gpus: Sequence[int], usual: int) -> Counter[int] | None:
    """Return the slots of a shape with ``gpus`` on its servers; None if the shape cannot exist with
    all servers equally idle.
    """
    if len(gpus) == 1:
        return Counter(gpus)
    if len(set(gpus)) > 1:
        end_gpus = sum(gpus) - usual * (len(gpus) - 1)
        if not 1 <= end_gpus <= usual:
            return None
        gpus = [usual] * (len(gpus) - 1) + [end_gpus]
    return Counter(size if size == usual else -size for size in gpus)


def _limits(program: Program, column: int) -> list[tuple[int, int, int]]:
    """Return row, capacity and amount of each limit that a column counts towards."""
    columns = program.configurations
    if columns.share is None:
        return []
    amounts = columns.demands.amounts_of(int(columns.share[column]))
    return [(row, int(program.capacity[row]), amount) for row, amount in amounts if amount]


class _Builder:
    """Builds the model. Rows: a job's single choice, limits, a type's slots of one size, a class's
    servers.
    """

    def __init__(self, classes: tuple[ServerClass, ...], largest: int) -> None:
        self._classes, self._largest = classes, largest
        self._rows: dict[tuple[str, int, int], int] = {}
        self._upper: list[float] = []
        self._start, self._row, self._factor = [0], list[int](), list[float]()
        self._objective, self._bound = list[float](), list[float]()

    def _add_factor(self, key: tuple[str, int, int], upper: float, factor: float) -> None:
        if key not in self._rows:
            self._rows[key] = len(self._upper)
            self._upper.append(upper)
        self._row.append(self._rows[key])
        self._factor.append(factor)

    def _end(self, objective: float, bound: float) -> None:
        self._start.append(len(self._row))
        self._objective.append(objective)
        self._bound.append(bound)

    def add_job(
        self,
        job: int,
        pool: int,
        slots: Counter[int],
        limits: Iterable[tuple[int, int, int]],
        value: float,
    ) -> None:
        self._add_factor(("job", job, 0), 1.0, 1.0)
        for row, capacity, amount in limits:
            self._add_factor(("limit", row, 0), float(capacity), float(amount))
        for size, count in slots.items():
            self._add_factor(("slot", pool, size), 0.0, float(count))
        self._end(value, 1.0)

    def add_pattern(self, number: int, pattern: Pattern) -> None:
        group = self._classes[number]
        for size, count in Counter(pattern).items():
            self._add_factor(("slot", group.pool, size), 0.0, -float(count))
        self._add_factor(("class", number, 0), float(len(group.servers)), 1.0)
        self._end(0.0, float(len(group.servers)))

    def ends(self, pool: int) -> list[int]:
        """Return the sizes of the ends of spread jobs on one type, ascending."""
        sizes = (size for row, row_pool, size in self._rows if (row, row_pool) == ("slot", pool))
        return sorted(-size for size in sizes if size < 0)

    def model(self) -> Model:
        objective = np.array(self._objective)
        return Model(
            objective / (objective.max(initial=0.0) or 1.0),
            np.array(self._start),
            np.array(self._row),
            np.array(self._factor),
            np.array(self._upper),
            np.array(self._bound),
        )


def read_class_plan(program: ClassProgram, answer: Answer) -> ClassPlan | None:
    """Read the class plan from the solver's answer; None if the answer is incomplete."""
    if answer.x is None:
        return None
    count = len(program.columns)
    column_groups = chosen_columns(program.columns, Answer(answer.x[:count]))
    if column_groups is None:
        return None
    bins: list[Counter[Pattern]] = [Counter() for _ in program.classes]
    for (number, pattern), servers in zip(program.patterns, answer.x[count:], strict=True):
        if round(float(servers)) > 0:
            bins[number][pattern] += round(float(servers))
    return ClassPlan(column_groups, tuple(zip(program.classes, bins, strict=True)))

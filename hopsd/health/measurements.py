"""Records as columns: what each says of which node, without warm-up, in blocks of time.

A measurement is the logarithm of seconds. It belongs to a *cell*, within which speeds compare: one
workload in one shape on one GPU type, alone on its nodes or beside other jobs. Where a job reports
its ranks, the cell is an hour of the run, and each node is compared with the run's other nodes by
its ranks' computing time: the time they wait is another node's.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

from hopsd.health.records import HealthNode, HealthRecords, SpeedRecord, Stay
from hopsd.health.robust import (
    CLIP,
    Floats,
    Ints,
    distinct_counts,
    extra_variances,
    group,
    group_means,
    group_medians,
    moderate,
)
from hopsd.model.ids import NodeName

K = TypeVar("K", bound=Hashable)

ALONE, IN_COMPANY, RANKS = range(3)
KINDS = 3
"""How a run was measured; each kind has its own variance between runs."""

RUN_GAP_SECONDS = 1800.0
"""A job silent for longer, and for 10 times its usual interval, restarted, and warms up again."""

UNKNOWN_INTERVAL = 600.0
"""Seconds between reports of a run that has one."""

AFTER_SECONDS = 90.0
"""So long after a job has left, records of others still are about a time when it was there."""

RANKS_SECONDS = 3600.0
"""Ranks are compared with each other within such times: what all do may change meanwhile."""

AGES = np.array([0.5, 30, 60, 90, 120, 180, 240, 300, 420, 600, 900, 1200, 1800, 3600.0])
"""Bins of a run's age, in seconds, in which warm-up and heat are estimated."""

WARM_UP = 0.05
"""Records of ages at which runs are typically slower or faster by more do not compare with those of
other ages: the rest of a warm-up, or what changed for all runs that began at once."""

YOUNG_SECONDS = 180.0
"""The first minutes of a run are not compared with others."""

MIN_RUNS = 5
"""Of so many runs or more, how slow they are at some age is estimated."""

MEDIAN_FREEDOM = 2.0 / 3.0
"""Degrees of freedom that a block's median takes: squares around it, of 3 to 7 normal values."""

MIN_NOISE, UNKNOWN_NOISE = 1e-4, 0.01
"""Standard deviations of a record: the least, and that where no block has three."""

PAIR_FREEDOM = 2.0 / 3.0
"""Degrees of freedom of a difference of blocks, of which each is in two (von Neumann, 1941)."""

MIN_RATIO = 0.01
"""Of the variance of differences to what noise makes it: blocks may be equal."""

LEVELS = ((86_400.0, 300.0), (14 * 86_400.0, 1800.0), (np.inf, 7200.0))
"""Width of blocks by how long ago they are, both in seconds."""


@dataclass(frozen=True, slots=True)
class Units:
    """Measurements of one run on one target in one cell and block of time; columns of length n.

    ``target`` indexes ``targets``: nodes, by index; the slowest of several determined the speed.
    ``value``: mean logarithm of seconds; ``variance``: its noise, without what differs between
    runs, known with so many degrees of ``freedom``; ``wander``: the part of it that no record in it
    shows. ``records``: how many. ``time``: of the first. ``program``: number of the workload and
    the kind, of what wanders alike. ``alone``: of each of ``cells``, the number of that of the same
    runs without neighbours, -1: there is none.
    """

    value: Floats
    variance: Floats
    wander: Floats
    freedom: Floats
    records: Ints
    time: Floats
    middle: Floats
    run: Ints
    cell: Ints
    kind: Ints
    program: Ints
    target: Ints
    targets: tuple[tuple[int, ...], ...]
    cells: int
    alone: Ints

    def __len__(self) -> int:
        return len(self.value)

    @property
    def widths(self) -> Ints:
        """How many nodes each unit's target has (n,)."""
        return np.array([len(nodes) for nodes in self.targets], np.int64)[self.target]


class _Index(Generic[K]):
    """Numbers keys in the order they come."""

    def __init__(self) -> None:
        self.keys: dict[K, int] = {}

    def __call__(self, key: K) -> int:
        return self.keys.setdefault(key, len(self.keys))


@dataclass(slots=True)
class Columns:
    """One row for each record and target, in order of time; columns of length n.

    ``value``: logarithm of seconds without ``warm_up``, what runs of that age are slower by, of
    ranks less ``common``, the mean over the ``width`` nodes of that type. ``run``: what deviates
    together; ``job_run``: the run itself. ``neighbours``: which runs were beside it, 0: none;
    ``full``: these jobs hold all GPUs of the node, so that nobody else can have come. ``alone``: as
    of :class:`Units`.
    """

    at: Floats
    age: Floats
    value: Floats
    common: Floats
    warm_up: Floats
    run: Ints
    cell: Ints
    workload: Ints
    kind: Ints
    target: Ints
    job_run: Ints
    neighbours: Ints
    width: Ints
    full: Ints
    targets: tuple[tuple[int, ...], ...]
    cells: int
    alone: Ints

    def steady(self) -> Columns:
        """Without ages at which runs are so much slower or faster that what that is matters, and
        without the youngest, where few runs may tell how much that is.
        """
        rows = (np.abs(self.warm_up) <= WARM_UP) & (
            (self.age > YOUNG_SECONDS) | (self.kind == RANKS)
        )
        return replace(self, **{name: getattr(self, name)[rows] for name in (*_REALS, *_INTEGERS)})


_REALS = ("at", "age", "value", "common", "warm_up")
_INTEGERS = ("run", "cell", "workload", "kind", "target", "job_run", "neighbours", "width", "full")


@dataclass(frozen=True, slots=True)
class Past:
    """What was reported until now, in order of time; lists of length n, but for ``begins``.

    ``runs``: which run, by number, each record is of; ``begins``: when each run began;
    ``neighbours``: which other runs were on its nodes, as a number, 0: none. It changes whenever
    one comes or goes: how fast a run is beside other neighbours is another question.
    """

    records: Sequence[SpeedRecord]
    runs: Sequence[int]
    begins: Sequence[float]
    neighbours: Sequence[int]


def read_past(records: HealthRecords) -> Past:
    """The runs up to ``records.now``, and their neighbours."""
    order = sorted((r for r in records.records if r.at <= records.now), key=lambda r: (r.at, r.job))
    runs, begins = _runs(order)
    return Past(order, runs, begins, _jobs_beside(order, runs, records.stays))


def read_columns(records: HealthRecords, past: Past | None = None) -> Columns:
    """All records up to ``records.now``, without what runs of each age are slower by.

    ``past``: of these records, where it is known already.
    """
    columns = _columns(records, past or read_past(records))
    _remove_warm_up(columns)
    return columns


def _columns(records: HealthRecords, past: Past) -> Columns:
    index = {node.name: i for i, node in enumerate(records.nodes)}
    number_cell: _Index[Hashable] = _Index()
    number_target: _Index[tuple[int, ...]] = _Index()
    number_workload: _Index[str] = _Index()
    gpus_held = _gpus_held(past)
    rows: list[tuple[float, ...]] = []
    alone: dict[int, int] = {}
    number_run: _Index[tuple[str, int, int]] = _Index()
    known: dict[tuple[int, str, int], tuple[float, ...]] = {}
    for record, whole_run, neighbours in zip(past.records, past.runs, past.neighbours, strict=True):
        head = record.at, record.at - past.begins[whole_run]
        kind_of_record = whole_run, record.workload, neighbours
        if not record.ranks and (rest := known.get(kind_of_record)):
            rows.append((*head, math.log(record.seconds_per_iteration), *rest))
            continue
        target = number_target(tuple(sorted(index[name] for name in record.nodes)))
        is_shared = neighbours > 0
        # Neighbours slow each other down: together they are one observation.
        run = number_run(("beside", target, neighbours) if is_shared else ("run", whole_run, 0))
        nodes = [records.nodes[index[name]] for name in record.nodes]
        workload = number_workload(record.workload)
        beside = neighbours, 0 if is_shared else whole_run
        full = all(gpus_held[node.name, *beside] == node.gpus for node in nodes)
        if by_node := _seconds_by_node(record):
            hour, run = record.at // RANKS_SECONDS, number_run(("run", whole_run, 0))
            for gpu_type, values in _by_type(records, index, by_node).items():
                mean = sum(values.values()) / len(values)
                cell = number_cell(("ranks", whole_run, gpu_type, hour))
                for node, value in values.items():
                    target = number_target((node,))
                    key = (run, cell, workload, RANKS, target, whole_run, neighbours)
                    rows.append((*head, value - mean, mean, 0.0, *key, len(values), full))
        elif len({node.gpu_type for node in nodes}) == 1:
            subject = workload, _shape(record), nodes[0].gpu_type
            cell = number_cell((*subject, is_shared))
            if is_shared:
                alone[cell] = number_cell((*subject, False))
            kind = IN_COMPANY if is_shared else ALONE
            key = (run, cell, workload, kind, target, whole_run, neighbours)
            rest = known[kind_of_record] = (0.0, 0.0, *key, 1, full)
            rows.append((*head, math.log(record.seconds_per_iteration), *rest))
    table = np.array(rows, np.float64).reshape(-1, len(_REALS) + len(_INTEGERS))
    reals, integers = np.hsplit(table, [len(_REALS)])
    return Columns(
        **dict(zip(_REALS, reals.T.copy(), strict=True)),
        **dict(zip(_INTEGERS, integers.T.astype(np.int64), strict=True)),
        targets=tuple(number_target.keys),
        cells=len(number_cell.keys),
        alone=np.array([alone.get(cell, -1) for cell in number_cell.keys.values()], np.int64),
    )


def _gpus_held(past: Past) -> Counter[tuple[NodeName, int, int]]:
    """GPUs held on each node by the runs that were beside each other there, or by a run alone."""
    members = dict(zip(zip(past.runs, past.neighbours, strict=True), past.records, strict=True))
    gpus_held: Counter[tuple[NodeName, int, int]] = Counter()
    for (run, neighbours), record in members.items():
        for name, gpus in record.nodes.items():
            gpus_held[name, neighbours, 0 if neighbours else run] += gpus
    return gpus_held


def _shape(record: SpeedRecord) -> tuple[int, ...]:
    return tuple(sorted(record.nodes.values()))


def _seconds_by_node(record: SpeedRecord) -> dict[NodeName, float]:
    """Mean logarithm of the ranks' computing seconds by node; empty where that compares nothing."""
    by_node: dict[NodeName, list[float]] = defaultdict(list)
    for rank in record.ranks:
        if rank.compute <= 0.0:
            return {}
        by_node[rank.node].append(rank.compute)
    if len(by_node) < 2:
        return {}
    return {node: float(np.log(seconds).mean()) for node, seconds in by_node.items()}


def _by_type(
    records: HealthRecords, index: Mapping[NodeName, int], by_node: Mapping[NodeName, float]
) -> dict[str, dict[int, float]]:
    """The values of nodes, by index, of each GPU type."""
    by_type: dict[str, dict[int, float]] = defaultdict(dict)
    for name, value in by_node.items():
        node = index[name]
        by_type[records.nodes[node].gpu_type][node] = value
    return by_type


def _runs(past: Sequence[SpeedRecord]) -> tuple[list[int], list[float]]:
    """The run of each record, and when each run began: a job that moves or restarts begins anew."""
    numbers: list[int] = []
    begins: list[float] = []
    last: dict[str, tuple[int, float, float, object]] = {}
    for record in past:
        run, last_time, interval, nodes = last.get(record.job, (-1, record.at, np.inf, None))
        silent = record.at - last_time
        if nodes != record.nodes or silent > max(RUN_GAP_SECONDS, 10.0 * interval):
            run, interval = len(begins), np.inf
            begins.append(record.at)
        elif silent > 0.0:
            interval = min(interval, silent)
        last[record.job] = run, record.at, interval, record.nodes
        numbers.append(run)
    return numbers, begins


def _jobs_beside(
    past: Sequence[SpeedRecord], runs: Sequence[int], stays: Sequence[Stay]
) -> list[int]:
    """Which other runs were on the nodes of each record when it was measured, as a number."""
    begins, ends = {}, {}
    for node, spans in _presence(past, runs, stays).items():
        begins[node], ends[node] = np.sort(np.array(sorted(spans)).T)
    moments = np.array([record.at for record in past])
    is_shared, changes = np.zeros(len(past), bool), np.zeros(len(past), np.int64)
    rows: dict[NodeName, list[int]] = defaultdict(list)
    for row, record in enumerate(past):
        for node in record.nodes:
            rows[node].append(row)
    for node, node_rows in rows.items():
        times = moments[node_rows]
        begin_counts = np.searchsorted(begins[node], times, "right")
        end_counts = np.searchsorted(ends[node], times, "left")
        is_shared[node_rows] |= begin_counts - end_counts > 1
        changes[node_rows] += begin_counts + end_counts
    numbers: list[int] = np.where(is_shared, changes, 0).tolist()
    return numbers


def _presence(
    past: Sequence[SpeedRecord], runs: Sequence[int], stays: Sequence[Stay]
) -> dict[NodeName, set[tuple[float, float]]]:
    """From when to when jobs were on each node; without ``stays`` those that report."""
    present: dict[NodeName, set[tuple[float, float]]] = defaultdict(set)
    for stay in stays:
        for node in stay.nodes:
            present[node].add((stay.start, stay.end + AFTER_SECONDS))
    spans = [] if stays else _spans(past, runs)
    for run, record in dict(zip(runs, past, strict=True)).items():
        for node in record.nodes:
            if not stays:
                present[node].add(spans[run])
            elif node not in present:
                present[node].add((-np.inf, np.inf))
    return present


def _spans(past: Sequence[SpeedRecord], runs: Sequence[int]) -> list[tuple[float, float]]:
    """When each run was there: somewhat before its first record, and after its last."""
    if not past:
        return []
    at, run = np.array([record.at for record in past]), np.array(runs, np.int64)
    order = np.lexsort((at, run))
    at, run = at[order], run[order]
    count = int(run[-1]) + 1
    goes_on = run[1:] == run[:-1]
    interval = group_medians(np.diff(at)[goes_on], run[1:][goes_on], count)
    margin = 1.5 * np.where(np.isnan(interval), UNKNOWN_INTERVAL, interval)
    begin = np.searchsorted(run, np.arange(count))
    first, last = at[begin] - margin, at[np.append(begin[1:], len(run)) - 1] + margin
    return list(zip(first.tolist(), last.tolist(), strict=True))


def _remove_warm_up(columns: Columns) -> None:
    """Take out by how much runs of each age are typically slower than older ones.

    The step from one bin of ages to the next is the median over runs: of the workload, where
    enough have it, else over all. A step that noise explains is none.
    """
    is_compared = columns.kind != RANKS
    bins = np.searchsorted(AGES, columns.age, "right")
    series = group(columns.run, columns.cell, columns.target)
    entry = group(series, bins)
    count = int(entry.max()) + 1 if len(entry) else 0
    first = np.zeros(count, np.int64)
    first[entry] = np.arange(len(entry))
    means = group_medians(columns.value, entry, count)
    size = np.bincount(entry, minlength=count).astype(float)
    usable = np.flatnonzero(is_compared[first])
    table = _Ages(means, size, bins[first], columns.run[first], series[first])
    common = table.profile(usable, np.zeros(len(AGES) + 1))
    workload = columns.workload[first[usable]]
    count = int(columns.workload.max(initial=-1)) + 1
    profiles = np.tile(common, (count, 1))
    runs = distinct_counts(table.run[usable], workload, count)
    for number in np.flatnonzero(runs >= MIN_RUNS):
        profiles[number] = table.profile(usable[workload == number], common)
    columns.warm_up = np.where(is_compared, profiles[columns.workload, bins], 0.0)
    columns.value = columns.value - columns.warm_up


@dataclass(frozen=True, slots=True)
class _Ages:
    """Each series' median in each bin of ages; columns of length n."""

    mean: Floats
    size: Floats
    bin: Ints
    run: Ints
    series: Ints

    def profile(self, rows: Ints, expected: Floats) -> Floats:
        """How far values of each bin are from those of older bins (bins,): the median over runs.

        ``expected``: taken where fewer runs than MIN_RUNS, or less than three standard errors, say
        otherwise.
        """
        profile = expected.copy()
        count = int(self.series.max(initial=-1)) + 1
        total, weight = np.zeros(count), np.zeros(count)
        for age_bin in range(len(AGES), -1, -1):
            members = rows[self.bin[rows] == age_bin]
            series = self.series[members]
            has_older = weight[series] > 0.0
            older = total[series[has_older]] / weight[series[has_older]]
            excess = self.mean[members[has_older]] - older - expected[age_bin]
            runs = len(np.unique(self.run[members[has_older]]))
            if runs >= MIN_RUNS:
                middle = float(np.median(excess))
                deviation = 1.4826 * float(np.median(np.abs(excess - middle)))
                if abs(middle) > 3.0 * 1.25 * deviation / np.sqrt(runs):
                    profile[age_bin] += middle
            total[series] += self.size[members] * (self.mean[members] - profile[age_bin])
            weight[series] += self.size[members]
        return profile


def join_blocks(columns: Columns, now: float) -> Units:
    """Each run's records on each target in each cell and block of time, joined."""
    age = now - columns.at
    level = np.searchsorted([limit for limit, _ in LEVELS], age, "right")
    width = np.array([seconds for _, seconds in LEVELS])[level]
    block = group(columns.run, columns.cell, columns.target, level, np.floor(columns.at / width))
    count = int(block.max()) + 1 if len(block) else 0
    size = np.bincount(block, minlength=count)
    deviations = columns.value - group_medians(columns.value, block, count)[block]
    noise, freedom = _noise(deviations, size[block], columns.workload)
    limited_values = np.clip(deviations, -CLIP * noise, CLIP * noise) - deviations + columns.value
    weights = np.ones(len(block))
    first = np.full(count, len(block))
    np.minimum.at(first, block, np.arange(len(block)))
    units = Units(
        value=group_means(limited_values, weights, block, count),
        variance=(noise[first] ** 2) / size,
        wander=np.zeros(count),
        freedom=freedom[first],
        records=size,
        time=columns.at[first],
        middle=group_means(columns.at, weights, block, count),
        run=columns.run[first],
        cell=columns.cell[first],
        kind=columns.kind[first],
        program=group(columns.workload, columns.kind)[first],
        target=columns.target[first],
        targets=columns.targets,
        cells=columns.cells,
        alone=columns.alone,
    )
    return _with_wander(units)


def _noise(deviations: Floats, size: Ints, workload: Ints) -> tuple[Floats, Floats]:
    """Standard deviation of each record around its block, by workload, and the degrees of freedom
    with which it is known; (n,).

    ``size``: of each record's block. Of a workload with few records, that of all counts the more.
    """
    count = int(workload.max(initial=-1)) + 1
    several = np.flatnonzero(size >= 3)
    free = np.bincount(workload[several], 1.0 - MEDIAN_FREEDOM / size[several], count)
    extra = extra_variances(
        deviations[several], np.zeros(len(several)), workload[several], free.astype(np.float64)
    )
    has_several = np.bincount(workload[several], minlength=count) > 0
    variance = np.where(has_several, np.maximum(extra, MIN_NOISE**2), UNKNOWN_NOISE**2)
    moderated_variance, freedom = moderate(variance, free.astype(np.float64))
    return np.sqrt(moderated_variance)[workload], freedom[workload]


def _with_wander(units: Units) -> Units:
    """Add to each variance what successive blocks of a run differ by beyond their noise."""
    program, count = units.program, int(units.program.max(initial=-1)) + 1
    noise = group_means(units.variance, np.ones(len(units)), program, count)
    ratio, freedom = variance_ratios(*differences(units, 1, np.inf), count, PAIR_FREEDOM)
    extra = (np.maximum(ratio - 1.0, 0.0) * noise)[program]
    units.variance[:] += extra
    # Noise that no block shows is what successive blocks differ by.
    units.wander[:] = np.where(units.freedom > 0.0, extra, 0.0)
    both = np.stack([units.freedom, freedom[program]])
    inverse = np.divide(1.0, both, out=np.zeros_like(both), where=both > 0.0).sum(axis=0)
    units.freedom[:] = 1.0 / np.where(inverse > 0.0, inverse, 1.0)
    return units


def differences(units: Units, lag: int, seconds: float) -> tuple[Floats, Ints]:
    """By how many standard deviations blocks of a run differ of which one is the ``lag``-th after
    the other, at most so many ``seconds`` later; and their program (pairs,).
    """
    order = np.lexsort((units.middle, units.target, units.cell, units.run))
    first, second = order[:-lag], order[lag:]
    successive = (units.run[first] == units.run[second]) & (units.cell[first] == units.cell[second])
    successive &= units.target[first] == units.target[second]
    successive &= units.middle[second] - units.middle[first] <= seconds
    first, second = first[successive], second[successive]
    deviation = np.sqrt(units.variance[first] + units.variance[second])
    return (units.value[second] - units.value[first]) / deviation, units.program[first]


def variance_ratios(
    deviations: Floats, programs: Ints, count: int, freedom: float
) -> tuple[Floats, Floats]:
    """Variances of each program's ``deviations`` (count,), of one with few of them much as of all,
    and with how many degrees of freedom that is known (count,). As of :func:`differences`, each
    worth so many degrees of ``freedom``.
    """
    pairs = np.bincount(programs, minlength=count).astype(np.float64)
    ratios = extra_variances(deviations, np.zeros(len(deviations)), programs, pairs)
    return moderate(np.maximum(ratios, MIN_RATIO), freedom * pairs)


def node_types(nodes: Sequence[HealthNode]) -> Ints:
    """The GPU type of each node, as a number."""
    number: _Index[str] = _Index()
    return np.array([number(node.gpu_type) for node in nodes], np.int64)

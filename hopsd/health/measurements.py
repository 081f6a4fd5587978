"""Turn records into columns: what each says about which node, without warm-up, in blocks of time.

A measurement is the logarithm of seconds. It belongs to a *cell*, within which speeds compare: one
workload in one shape on one GPU type, alone on its nodes or beside other jobs. If a job reports its
ranks, the cell is an hour of the run, and each node is compared with the run's other nodes by the
computing time of its ranks: their waiting time is due to another node.
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
"""A job silent for longer, and for 10 times its usual interval, restarted and warms up again."""

UNKNOWN_INTERVAL = 600.0
"""The assumed seconds between reports of a run with a single report."""

AFTER_SECONDS = 90.0
"""For this long after a job has left, other jobs' records still cover a time when it was there."""

RANKS_SECONDS = 3600.0
"""Ranks are compared with each other within this time: over longer times, all may change."""

AGES = np.array([0.5, 30, 60, 90, 120, 180, 240, 300, 420, 600, 900, 1200, 1800, 3600.0])
"""Bins of a run's age, in seconds, in which warm-up and heat are estimated."""

WARM_UP = 0.05
"""Records of ages at which runs are typically slower or faster by more are not compared with other
ages: they are the rest of a warm-up, or a change to all runs that began at once."""

YOUNG_SECONDS = 180.0
"""The first minutes of a run are not compared with others."""

MIN_RUNS = 5
"""The least number of runs from which their slowness at some age is estimated."""

MEDIAN_FREEDOM = 2.0 / 3.0
"""Degrees of freedom that a median uses up, for squares around it of 3 to 7 normal values."""

MIN_NOISE, UNKNOWN_NOISE = 1e-4, 0.01
"""Standard deviations of a record: the least, and the one assumed if no block has three records."""

PAIR_FREEDOM = 2.0 / 3.0
"""Degrees of freedom of a difference of blocks if each block is in two (von Neumann, 1941)."""

MIN_RATIO = 0.01
"""The least ratio of the variance of differences to that of noise, since blocks may be equal."""

LEVELS = ((86_400.0, 300.0), (14 * 86_400.0, 1800.0), (np.inf, 7200.0))
"""Up to which age blocks have which width, both in seconds."""


@dataclass(frozen=True, slots=True)
class Units:
    """Measurements of one run on one target in one cell and block of time; columns of length n.

    ``target`` indexes ``targets``, tuples of node indices; the slowest of several nodes determined
    the speed. ``value`` is the mean logarithm of seconds; ``variance`` that of its noise, without
    differences between runs, with ``freedom`` degrees of freedom; ``wander`` the part of the
    variance that no single record shows. ``records`` is their number, ``time`` that of the first.
    ``program`` is that of :class:`Columns`. ``alone`` (cells,) is the number of
    the cell of the same runs without neighbours, -1 if there is none.
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
    def programs(self) -> int:
        """The number of programs."""
        return int(self.program.max(initial=-1)) + 1

    @property
    def widths(self) -> Ints:
        """How many nodes each unit's target has (n,)."""
        return np.array([len(nodes) for nodes in self.targets], np.int64)[self.target]


class _Index(Generic[K]):
    """Numbers keys in order of their first appearance."""

    def __init__(self) -> None:
        self.keys: dict[K, int] = {}

    def __call__(self, key: K) -> int:
        return self.keys.setdefault(key, len(self.keys))


@dataclass(slots=True)
class Columns:
    """One row for each record and target, in order of time; columns of length n.

    ``value`` is the logarithm of seconds without ``warm_up``, by which runs of that age are slower,
    and for ranks without ``common``, the mean over the ``width`` nodes of that type. ``run`` is the
    number of what deviates together, ``job_run`` that of the run itself. ``neighbours`` is a number
    for the runs beside it, 0 for none; ``full`` says that these jobs hold all GPUs of the node, so
    that no other job can have come. ``alone`` is that of :class:`Units`.
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

    @property
    def program(self) -> Ints:
        """The number of each row's workload and kind (n,); such runs wander and swing alike."""
        return self.workload * KINDS + self.kind

    def steady(self) -> Columns:
        """Drop ages at which runs are so much slower or faster that the exact amount matters, and
        the youngest ages, for which few runs may show that amount.
        """
        rows = (np.abs(self.warm_up) <= WARM_UP) & (
            (self.age > YOUNG_SECONDS) | (self.kind == RANKS)
        )
        return replace(self, **{name: getattr(self, name)[rows] for name in (*_REALS, *_INTEGERS)})


_REALS = ("at", "age", "value", "common", "warm_up")
_INTEGERS = ("run", "cell", "workload", "kind", "target", "job_run", "neighbours", "width", "full")


@dataclass(frozen=True, slots=True)
class Past:
    """What was reported until now, in time order; lists of length n, except ``begins``.

    ``runs`` is the number of each record's run; ``begins`` is when each run began; ``neighbours``
    is a number for the other runs on the record's nodes, 0 for none. The number changes whenever a
    run comes or goes, since a run's speed beside other neighbours is another question.
    """

    records: Sequence[SpeedRecord]
    runs: Sequence[int]
    begins: Sequence[float]
    neighbours: Sequence[int]


def read_past(records: HealthRecords) -> Past:
    """Find the runs up to ``records.now``, and their neighbours."""
    order = sorted((r for r in records.records if r.at <= records.now), key=lambda r: (r.at, r.job))
    runs, begins = _runs(order)
    return Past(order, runs, begins, _jobs_beside(order, runs, records.stays))


def read_columns(records: HealthRecords, past: Past | None = None) -> Columns:
    """Turn all records up to ``records.now`` into columns, without the runs' warm-up.

    ``past`` is that of these records, if the caller has it.
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
        # Neighbours slow each other down, so together they are one observation.
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
    """Count the GPUs held on each node by a run alone, or by runs beside each other there."""
    members = dict(zip(zip(past.runs, past.neighbours, strict=True), past.records, strict=True))
    gpus_held: Counter[tuple[NodeName, int, int]] = Counter()
    for (run, neighbours), record in members.items():
        for name, gpus in record.nodes.items():
            gpus_held[name, neighbours, 0 if neighbours else run] += gpus
    return gpus_held


def _shape(record: SpeedRecord) -> tuple[int, ...]:
    return tuple(sorted(record.nodes.values()))


def _seconds_by_node(record: SpeedRecord) -> dict[NodeName, float]:
    """Mean log of the ranks' computing seconds by node; empty if there is nothing to compare."""
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
    """Group the nodes' values by GPU type, and name nodes by index."""
    by_type: dict[str, dict[int, float]] = defaultdict(dict)
    for name, value in by_node.items():
        node = index[name]
        by_type[records.nodes[node].gpu_type][node] = value
    return by_type


def _runs(past: Sequence[SpeedRecord]) -> tuple[list[int], list[float]]:
    """Return each record's run, and when each run began: a moved or restarted job is a new run."""
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
    """Number the other runs on each record's nodes when it was measured, 0 for none."""
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
    """Return when jobs were on each node; without ``stays``, only those that report."""
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
    """Return when each run was there: from a little before its first record to after its last."""
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
    """Subtract how much slower runs of each age typically are than older ones.

    The step from one bin of ages to the next is the median over runs: those of the workload if
    there are enough, else all. A step that noise explains is ignored.
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
        """How far each bin's values are from those of older bins (bins,), as a median over runs.

        ``expected`` (bins,) stays where fewer runs than MIN_RUNS, or less than three standard
        errors, speak against it.
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
    """Join each run's records on each target in each cell and block of time."""
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
        program=columns.program[first],
        target=columns.target[first],
        targets=columns.targets,
        cells=columns.cells,
        alone=columns.alone,
    )
    return _with_wander(units)


def _noise(deviations: Floats, size: Ints, workload: Ints) -> tuple[Floats, Floats]:
    """Estimate by workload the standard deviation of each record around its block, and its degrees
    of freedom; (n,).

    ``size`` (n,) is that of each record's block. The fewer records a workload has, the more the
    noise of all workloads counts.
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
    """Add to each variance how much successive blocks of a run differ beyond their noise."""
    program, count = units.program, int(units.program.max(initial=-1)) + 1
    noise = group_means(units.variance, np.ones(len(units)), program, count)
    ratio, freedom = variance_ratios(*differences(units, 1, np.inf), count, PAIR_FREEDOM)
    extra = (np.maximum(ratio - 1.0, 0.0) * noise)[program]
    units.variance[:] += extra
    # If no block shows its noise, the difference of successive blocks is the noise.
    units.wander[:] = np.where(units.freedom > 0.0, extra, 0.0)
    both = np.stack([units.freedom, freedom[program]])
    inverse = np.divide(1.0, both, out=np.zeros_like(both), where=both > 0.0).sum(axis=0)
    units.freedom[:] = 1.0 / np.where(inverse > 0.0, inverse, 1.0)
    return units


def differences(units: Units, lag: int, seconds: float) -> tuple[Floats, Ints]:
    """Return the differences between blocks of a run and the ``lag``-th after them, at most
    ``seconds`` later, in standard deviations; and their programs, both (pairs,).
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
    """Return the variance of each program's ``deviations`` (count,), shrunk to that of all if it
    has few, and its degrees of freedom (count,). The deviations are those of :func:`differences`;
    each is worth ``freedom`` degrees of freedom.
    """
    pairs = np.bincount(programs, minlength=count).astype(np.float64)
    ratios = extra_variances(deviations, np.zeros(len(deviations)), programs, pairs)
    return moderate(np.maximum(ratios, MIN_RATIO), freedom * pairs)


def node_types(nodes: Sequence[HealthNode]) -> Ints:
    """Return the GPU type of each node, as a number."""
    number: _Index[str] = _Index()
    return np.array([number(node.gpu_type) for node in nodes], np.int64)

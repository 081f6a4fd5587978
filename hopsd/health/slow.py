"""Find slow nodes from the speeds of ordinary trainings, and name them only when sure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array, hstack

from hopsd.health.blame import blame, find_suspects
from hopsd.health.changes import change_points
from hopsd.health.measurements import (
    KINDS,
    RANKS,
    Past,
    Units,
    join_blocks,
    node_types,
    read_columns,
    read_past,
)
from hopsd.health.model import (
    MAX_SPREAD,
    USUAL_RUN_DEVIATION,
    Estimate,
    Fit,
    Rows,
    common_course,
    fit,
    initial_cells,
    summarize,
)
from hopsd.health.onsets import onsets
from hopsd.health.records import HealthRecords, SharedNode, SlowNode
from hopsd.health.robust import Floats, Ints, group
from hopsd.health.shared import find_shared
from hopsd.health.sudden import REACH_SECONDS, RunSeries, find_changes
from hopsd.health.swings import Swings, find_swings, lasting
from hopsd.model.ids import NodeName

MARGIN = 0.003
"""A node that may lose no more than 0.3 %, by its interval, is not named."""

FALSE_ALARMS = 1e-3
"""The most false alarms per server and day, however often somebody looks."""

CHANCE, CHANCE_OF_RUN = FALSE_ALARMS / 30.0, FALSE_ALARMS / 10.0
"""Probability that a look names a healthy node, and that it does so by the node's newest run alone.
On simulated sites judged every ten minutes, a day is worth some ten independent looks by several
runs, and on young sites as many by a single run (`python -m bench.health.chances`). Most of them
name no node, since a verdict asks for more: in 750 server-days levels of 1e-4 would have named
none, 2e-4 one and 1e-3 four. Real runs have heavier tails, and do not suggest higher levels: on
replayed public logs, 2e-4 for a single run would name 25 instead of 18 healthy nodes in 160
server-days, and 2.5e-4 one more in 240 looks at nodes that lose 5 %. Differences between healthy
nodes count like measurement errors; variances are estimated, so that deviations are Student's t.
"""

INTERVAL = 1.45
"""How much wider intervals are than the model's own, which takes estimated variances and change
points for the true ones; measured on simulated sites (`python -m bench.health.intervals`)."""

MIN_RECORDS = 3
"""The least records for a verdict: a pause may affect two reports, so that none would be usual."""

SEEMS_SLOW = 2.0
"""Standard errors at which a node seems slow, and no longer counts for what all have in common."""

STILL_SLOW = 3.0
"""Standard errors at which a node was slow in an earlier epoch, too."""

UNLIKE, STRANGE = 0.7, 0.002
"""A single run is not enough if at least the share STRANGE of all runs of its kind were slower by
UNLIKE times its slowness through no fault of their nodes."""

MIN_KNOWN = 0.01
"""Jobs on several nodes measure the one that is certainly slower by more than this."""

SETTLED_SECONDS = 450.0
"""A change in the middle of a run counts after this: a pause may fill a block of five minutes."""

PASSES = 5

MAX_CHANGES = 200
"""The most changes on a small site; a large one may have one per node. Time is cubic in their
number, and an alternating workload has thousands: the oldest are ignored."""

HOUR, DAY = 3600.0, 86_400.0
COURSE_HOURS = (1.0, 3.0, 10.0)
"""Candidates for how long a common course of a type's nodes lasts; the likeliest is taken."""


def find_slow(records: HealthRecords) -> tuple[SlowNode, ...]:
    """Return the nodes that are slow at ``records.now``, the slowest first."""
    return judge_nodes(records, read_past(records))[0]


def judge_nodes(
    records: HealthRecords, past: Past
) -> tuple[tuple[SlowNode, ...], tuple[SharedNode, ...]]:
    """Return the nodes that are slow at ``records.now``, the slowest first, and the other nodes
    whose jobs slow each other down. ``past`` is that of the records.
    """
    columns, types = read_columns(records, past), node_types(records.nodes)
    units = join_blocks(columns.steady(), records.now)
    if not len(units):
        return (), ()
    course = fit_course(units, types)
    series = RunSeries(columns, types, records.now - REACH_SECONDS)
    changes = find_changes(series, records.now, course.swings)
    slow_nodes = []
    for node, details in enumerate(records.nodes):
        verdict = course.judge(node, records.now)
        if verdict is not None:
            estimate, begin = verdict
            slow_nodes.append(slow_node(details.name, estimate.slowness, estimate.error, begin))
        elif (change := changes.get(node)) is not None:
            slow_nodes.append(slow_node(details.name, change.slowness, change.error, change.since))
    slow = tuple(sorted(slow_nodes, key=lambda slow: (slow.factor, slow.node)))
    slow_names = {entry.node for entry in slow}
    shared_nodes = find_shared(
        records.nodes, course.units, course.values, course.fit, course.last, records.now
    )
    return slow, tuple(
        sorted((entry for entry in shared_nodes if entry.node not in slow_names), key=_by_factor)
    )


def _by_factor(node: SharedNode) -> tuple[float, NodeName]:
    return node.factor, node.node


def slow_node(node: NodeName, slowness: float, error: float, since: float | None) -> SlowNode:
    """Build the verdict on a node; ``slowness`` and ``error`` are those of an :class:`Estimate`."""
    low, middle, high = (
        float(np.exp(-slowness + k * INTERVAL * error)) for k in (-1.96, 0.0, 1.96)
    )
    return SlowNode(node, middle, low, high, since)


@dataclass(slots=True)
class Course:
    """The fit, and when each node's epochs began (None for the first).

    The variances of ``units`` include their runs' ``swings``; ``values`` are those of the units,
    without what nodes have in common.
    """

    fit: Fit
    units: Units
    values: Floats
    begins: list[list[float | None]]
    first_epoch: Ints
    swings: Swings

    @property
    def last(self) -> Floats:
        """The fitted slowness of each node in its last epoch (nodes,)."""
        return self.fit.slowness[[*(self.first_epoch[1:] - 1).tolist(), -1]]

    def estimate(self, node: int, last: int = -1) -> Estimate | None:
        """The node's slowness in epoch ``last``; None if nothing is compared with it."""
        first, count = int(self.first_epoch[node]), last % len(self.begins[node]) + 1
        return self.fit.judge(range(first, first + count))

    def judge(self, node: int, now: float) -> tuple[Estimate, float | None] | None:
        """The node's slowness and since when, if it is certainly slow at ``now``."""
        last = len(self.begins[node]) - 1
        estimate = self.estimate(node)
        if estimate is None or not _sure(estimate, self.fit):
            return None
        while last and _was_slow(self.estimate(node, last - 1)):
            last -= 1
        begin = self.begins[node][last]
        if estimate.has_controls and begin is not None and now - begin < SETTLED_SECONDS:
            return None
        return estimate, begin


def fit_course(reported: Units, types: Ints) -> Course:
    """Fit levels, common courses and epochs in turn: each gets clearer as the others are known."""
    nodes, factor = len(types), lasting(reported)
    units = replace(reported, variance=reported.variance * factor)
    level = initial_cells(units)
    run_variance = np.full(KINDS, (2.0 * USUAL_RUN_DEVIATION) ** 2)
    spread = MAX_SPREAD**2
    course = np.zeros(len(units))
    begins: list[list[float | None]] = [[None] for _ in range(nodes)]
    slowness, error = np.zeros(nodes), np.ones(nodes)
    seems_slow = np.zeros(nodes, bool)
    first_epoch = np.arange(nodes)
    # Ranks are compared within an hour of their job, and need no common course.
    types_compared = np.where(units.kind == RANKS, -1, _type_of(units, types))
    cells_compared = np.where(units.kind == RANKS, -1, units.cell)
    suspects: dict[int, float] = {}
    if (units.widths > 1).any():
        suspects = find_suspects(units, units.value, run_variance, nodes)

    def first_guess(node: int, time: float) -> float:
        del time
        return suspects.get(node, 0.0)

    for number in range(PASSES):
        slowness_of = (
            _slowness_lookup(begins, first_epoch, slowness, error) if number else first_guess
        )
        rows = blame(units, units.value - course - level[units.cell], run_variance, slowness_of)
        epoch = _epoch_of(units, rows, begins, first_epoch)
        # Leave out nodes that seem slow: as part of the common course, they would hide themselves.
        tell = np.flatnonzero(~seems_slow[epoch])
        telling = Rows(rows.unit[tell], rows.node[tell], rows.share[tell])
        residual = (units.value - level[units.cell])[telling.unit] - slowness[epoch][tell]
        hourly, hourly_variance = common_course(
            units, telling, residual, run_variance, types_compared, HOUR, COURSE_HOURS
        )
        rest = residual - hourly[telling.unit]
        daily, daily_variance = common_course(
            units, telling, rest, run_variance, cells_compared, DAY
        )
        course = hourly + daily
        swings = find_swings(reported, reported.value - course, factor)
        units = replace(reported, variance=reported.variance * swings.factor)
        if number:
            residuals = units.value - course - level[units.cell]
            begins = _changes(units, rows, residuals, run_variance, nodes, swings)
        values = units.value - course
        if number:
            slow_since = onsets(units, rows, values, slowness[epoch], run_variance, spread, nodes)
            for node, time in slow_since.items():
                changes = {begin for begin in begins[node] if begin is not None}
                begins[node] = [None, *sorted({*changes, time})]
            begins = _newest(begins, max(nodes, MAX_CHANGES))
        errors = hstack(
            [
                _errors(units, hourly_variance, types_compared),
                _errors(units, daily_variance, cells_compared),
            ]
        ).tocsr()
        first_epoch, result = _fit_epochs(units, rows, values, errors, begins)
        level, slowness, run_variance = result.cells, result.slowness, result.usual_run_variance
        spread = min(result.spread, MAX_SPREAD**2)
        error = np.sqrt(np.diag(result.covariance))[: len(slowness)]
        seems_slow = result.seems_slow(SEEMS_SLOW)
    while (clear := _without_least_clear(begins, first_epoch, result)) != begins:
        begins = clear
        first_epoch, result = _fit_epochs(units, rows, values, errors, begins)
    return Course(result, units, values, begins, first_epoch, swings)


def _newest(begins: list[list[float | None]], most: int) -> list[list[float | None]]:
    """Keep only the ``most`` newest of all nodes' changes."""
    times = sorted(time for node in begins for time in node if time is not None)
    last_left_out = times[-most - 1] if len(times) > most else -np.inf
    return [
        [None, *(time for time in node if time is not None and time > last_left_out)]
        for node in begins
    ]


def _errors(units: Units, variance: Floats, groups: Ints) -> csr_array:
    """Return the standard deviation of the course's error, one cause for each day of each of
    ``groups`` (n,): (n, days). A day's error has one direction, since runs last.
    """
    day = group(groups, np.floor(units.middle / DAY))
    return csr_array((np.sqrt(variance), (np.arange(len(day)), day)))


def _fit_epochs(
    units: Units,
    rows: Rows,
    values: Floats,
    errors: csr_array,
    begins: list[list[float | None]],
) -> tuple[Ints, Fit]:
    """Fit the epochs; also return each node's first (nodes,). ``errors`` are the course's."""
    first = np.cumsum([0, *map(len, begins)])[:-1]
    epoch = _epoch_of(units, rows, begins, first)
    epochs = sum(map(len, begins))
    return first, fit(summarize(units, rows, values, errors, epoch, epochs), units.cells)


def _without_least_clear(
    begins: list[list[float | None]], first: Ints, result: Fit
) -> list[list[float | None]]:
    """Drop each node's least clear change if the fit does not confirm it. Only one is dropped at a
    time, since a short epoch may hide the change around it.
    """
    remaining = []
    for start, times in zip(first.tolist(), begins, strict=True):
        clear = result.changes(range(start, start + len(times)))
        weakest = 1 + int(np.argmin(clear)) if len(times) > 1 else 0
        drop = weakest > 0 and not clear[weakest - 1] > STILL_SLOW
        remaining.append([*times[:weakest], *times[weakest + 1 :]] if drop else times)
    return remaining


def _slowness_lookup(
    begins: list[list[float | None]], first: Ints, slowness: Floats, error: Floats
) -> Callable[[int, float], float]:
    certain = np.where((slowness > MIN_KNOWN) & (slowness > STILL_SLOW * error), slowness, 0.0)

    def certain_slowness(node: int, time: float) -> float:
        epoch = first[node]
        if len(begins[node]) > 1:
            epoch += sum(begin is not None and begin <= time for begin in begins[node])
        return float(certain[epoch])

    return certain_slowness


def _type_of(units: Units, types: Ints) -> Ints:
    target_types = np.array([types[nodes[0]] for nodes in units.targets], np.int64)
    return target_types[units.target]


def _epoch_of(units: Units, rows: Rows, begins: list[list[float | None]], first: Ints) -> Ints:
    """Return the epoch of each row (n,)."""
    epoch = first[rows.node].copy()
    for node, times in enumerate(begins):
        if len(times) > 1:
            node_rows = rows.node == node
            after = np.array(times[1:], np.float64)
            epoch[node_rows] += np.searchsorted(after, units.time[rows.unit[node_rows]], "right")
    return epoch


def _changes(
    units: Units,
    rows: Rows,
    residuals: Floats,
    run_variance: Floats,
    nodes: int,
    swings: Swings,
) -> list[list[float | None]]:
    """Find when each node's epochs began (None for the first)."""
    order = np.lexsort((units.time[rows.unit], rows.node))
    bounds = np.searchsorted(rows.node[order], np.arange(nodes + 1))
    begins: list[list[float | None]] = []
    for node in range(nodes):
        node_rows = order[bounds[node] : bounds[node + 1]]
        unit = rows.unit[node_rows]
        variance = units.variance[unit] / rows.share[node_rows]
        between_runs = run_variance[units.kind[unit]]
        job = group(units.run[unit], units.cell[unit])
        splits = change_points(residuals[unit], variance, job, between_runs)
        splits = _without_usual(node, splits, residuals[unit], 1.0 / variance, unit, units, swings)
        begins.append([None, *sorted({float(units.time[unit[i]]) for i in splits})])
    return begins


def _without_usual(
    node: int,
    splits: list[int],
    residuals: Floats,
    weights: Floats,
    unit: Ints,
    units: Units,
    swings: Swings,
) -> list[int]:
    """Drop changes in the middle of runs that change as much by themselves.

    ``residuals`` and ``weights`` are those of a ``node``'s rows, in time order, ``unit`` the rows'
    units.
    """
    remaining = []
    run = group(units.run[unit], units.cell[unit])
    for start, split, end in zip([0, *splits], splits, [*splits[1:], len(unit)], strict=False):
        both = np.intersect1d(run[start:split], run[split:end])
        sizes = [
            _mean_of(residuals, weights, run, number, split, end)
            - _mean_of(residuals, weights, run, number, start, split)
            for number in both.tolist()
        ]
        heads = [unit[start + int(np.argmax(run[start:split] == number))] for number in both]
        time = float(units.time[unit[split]])
        if not sizes or not all(
            swings.usual(int(units.program[head]), int(units.kind[head]), node, abs(size), time)
            for head, size in zip(heads, sizes, strict=True)
        ):
            remaining.append(split)
    return remaining


def _mean_of(
    values: Floats, weights: Floats, groups: Ints, number: int, start: int, end: int
) -> float:
    rows = np.flatnonzero(groups[start:end] == number) + start
    return float(np.average(values[rows], weights=weights[rows]))


def _sure(estimate: Estimate, result: Fit) -> bool:
    deviations = estimate.deviations
    if estimate.slowness - MARGIN < 1.96 * INTERVAL * estimate.error:
        return False
    if not len(deviations) or estimate.records < MIN_RECORDS:
        return False
    if estimate.probability > (CHANCE_OF_RUN if estimate.single else CHANCE):
        return False
    if estimate.single:
        return result.strange_runs(UNLIKE * estimate.slowness, estimate.kind) < STRANGE
    return bool(deviations[(len(deviations) - 1) // 2] > estimate.slowness / 2.0)


def _was_slow(previous_estimate: Estimate | None) -> bool:
    return (
        previous_estimate is not None
        and previous_estimate.slowness - MARGIN > STILL_SLOW * previous_estimate.error
    )

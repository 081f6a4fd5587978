"""Find nodes that became slow during a run within minutes, by comparing the run with itself.

The model of all measurements (`model.py`) must allow for differences between runs; a comparison
with the run's own past need not. Its last minutes are compared with the two hours before, less the
change of runs on other nodes of the type in that time. What changes a run's speed through no fault
of its node is left out: the first minutes, neighbours that come and go, seen or not
(`Columns.full`), and changes that other runs of the workload made at the same age, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import log

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import median_filter

from hopsd.health.measurements import ALONE, IN_COMPANY, RANKS, WARM_UP, YOUNG_SECONDS, Columns
from hopsd.health.robust import (
    CLIP,
    FIRM_CLIP,
    Floats,
    Ints,
    extra_variance,
    group,
    group_medians,
)
from hopsd.health.swings import Swings

WINDOWS = (600.0, 1200.0, 2400.0, 4800.0)
"""Lengths of a run's end, in seconds, that is compared with the time before. Shorter windows show
programs' pauses: a training that reads its next file may be 10 % slower for five minutes."""

PAST_SECONDS = 7200.0

MIN_RECENT, MIN_PAST = 4, 8
"""The least records in the window and before it."""

MIN_NODES = 3
"""The least nodes of a type with runs: fewer do not show what all have in common."""

ALARM = 5.0
"""Standard errors at which a change counts. In windows of ten minutes to eighty a server has some
550 independent chances a day; a normal variable exceeds this once in 6,000 days. In 750 simulated
server-days 4 was exceeded once. On replayed public logs 4.5 names 10 instead of 8 healthy nodes in
160 server-days, and none of 40 slow ones sooner."""

MIN_CHANGE = 0.02
"""Smaller changes take hours to judge: the time of day has as large an effect."""

USUAL_WANDER, USUAL_WEIGHT = 0.003, 4.0
"""How much a run's speed is assumed to change within hours besides its noise (a standard
deviation), and the weight of that assumption, in runs."""

NOISE_WEIGHT, MIN_RUNS = 30.0, 5
"""The weight of the usual noise, in records of a run, and from how many runs on a workload's own
usual noise is taken."""

HIDDEN_SECONDS = 420.0
"""If jobs that have not reported yet may have come, a change counts only after this time."""

SINGLE, SHARE = 2.0, 0.5
"""If several jobs share a node, each must have slowed down by this many standard errors, and by
this share of their mean."""

MOSTLY = 0.5
"""More than this share of a window's records must be slower: a program may pause for half of it."""

GRADUAL_ODDS = 10.0
"""How many times as likely a slow growth must be as a sudden change to be the program's doing. With
noise of 2 %, one in seven sudden changes by 5 % looks more like a growth, none ten times."""

ENDED_SECONDS = 6 * 3600.0
"""What was seen at the end of a run counts for this long unless another run follows."""

LATER_SECONDS = 1200.0

HABIT = 0.5
"""Another run of the workload that slowed down by this share of it at that age shows a habit."""

REACH_SECONDS = ENDED_SECONDS + PAST_SECONDS + WINDOWS[-1]
"""Older records are not compared."""

_CENTRE = 15
"""The number of records whose median each record is clipped around."""


@dataclass(frozen=True, slots=True)
class SuddenChange:
    """``node``, by index, became slower by ``slowness`` (natural logarithm) at ``since`` (epoch
    seconds); ``error`` is one standard deviation.
    """

    node: int
    slowness: float
    error: float
    since: float


class RunSeries:
    """Series of a run's speed on a node, each as long as the same jobs were beside the run."""

    def __init__(self, columns: Columns, types: Ints, since: float = -np.inf) -> None:
        """``types`` is the GPU type of each node, as a number. What is older than ``since`` is left
        out, except to see what a workload's runs do at some age.
        """
        widths = np.array([len(nodes) for nodes in columns.targets] or [0])
        rows = np.flatnonzero(
            ((columns.full > 0) | (columns.kind == ALONE))
            & (columns.at > since)
            & (columns.age > YOUNG_SECONDS)
            & (columns.warm_up <= WARM_UP)
            & (widths[columns.target] == 1)
            & ((columns.kind != RANKS) | (columns.neighbours == 0))
        )
        series = group(columns.target[rows], columns.neighbours[rows], columns.job_run[rows])
        order = np.lexsort((columns.at[rows], series))
        self._rows, self._series = rows[order], series[order]
        self._columns, self._types = columns, types
        count = int(series.max(initial=-1)) + 1
        self._head = self._rows[np.searchsorted(self._series, np.arange(count))]
        self._node = np.array([columns.targets[t][0] for t in columns.target[self._head]], np.int64)
        self._at = columns.at[self._rows]
        self._first = columns.at[self._head]
        self._last = self._at[np.searchsorted(self._series, np.arange(count), "right") - 1]
        width = columns.width[self._rows]
        # Compare ranks with the mean of the other nodes, without their own.
        value = columns.value[self._rows] * np.where(width > 1, width / np.maximum(width - 1, 1), 1)
        self._value = value
        self._whole = columns.value[self._rows] + columns.common[self._rows]
        self._noise = np.zeros(count)
        clipped_values = value.copy()
        bounds = np.searchsorted(self._series, np.arange(count + 1)).tolist()
        for number, (start, end) in enumerate(pairwise(bounds)):
            clipped_values[start:end], self._noise[number] = _clip(value[start:end])
        self._noise = _at_least_usual(self._noise, np.diff(bounds), columns.workload[self._head])
        self._sums = np.concatenate([[0.0], np.cumsum(clipped_values)])
        self._whole_sums = np.concatenate([[0.0], np.cumsum(self._whole)])
        self._begin = float(self._at.min(initial=0.0))
        self._span = float(self._at.max(initial=0.0)) - self._begin + 2.0 * PAST_SECONDS + 1.0
        self._key = self._series * self._span + self._at - self._begin
        node = self._node[self._series]
        self._node_key = np.sort(node * self._span + self._at - self._begin)

    def __len__(self) -> int:
        return len(self._head)

    def changes(
        self, time: float, now: float, asked: NDArray[np.bool_], swings: Swings | None = None
    ) -> list[SuddenChange]:
        """Return the clearest change of each node in the mask ``asked`` (nodes,) that its runs show
        at ``time``, as they end or go on, by what is known ``now``.
        """
        clearest: dict[int, tuple[float, SuddenChange]] = {}
        for window in WINDOWS if len(self) else ():
            for deviations, change in self._changes(time, now, window, asked, swings):
                if change.node not in clearest or deviations > clearest[change.node][0]:
                    clearest[change.node] = deviations, change
        return [change for _, change in clearest.values()]

    def seconds_after(self, time: float, now: float) -> Floats:
        """How long each node has reported between ``time`` and ``now``, in seconds (nodes,)."""
        nodes = np.arange(len(self._types)) * self._span - self._begin
        first = np.searchsorted(self._node_key, nodes + self._within(time), "right")
        last = np.searchsorted(self._node_key, nodes + self._within(now), "right") - 1
        seconds = np.zeros(len(nodes))
        some = last >= first
        seconds[some] = self._node_key[last[some]] - self._node_key[first[some]]
        return seconds

    def ends(self, now: float) -> list[float]:
        """When those runs ended whose end is a while ago but still counts; the last is ``now``."""
        recent = self._last[(self._last > now - ENDED_SECONDS) & (self._last < now - WINDOWS[0])]
        return [*np.unique(recent).tolist(), now]

    def _place(self, series: Ints, time: float) -> Ints:
        """The position after the last row at or before ``time`` in each of ``series``."""
        key = series * self._span + self._within(time) - self._begin
        return np.searchsorted(self._key, key, "right").astype(np.int64)

    def _within(self, time: float) -> float:
        """Clip ``time`` to the span of the reports, with a margin."""
        low = self._begin - PAST_SECONDS
        return min(max(time, low), low + self._span - 1.0)

    def _changes(
        self,
        time: float,
        now: float,
        window: float,
        asked: NDArray[np.bool_],
        swings: Swings | None,
    ) -> Iterator[tuple[float, SuddenChange]]:
        there = np.flatnonzero((self._first <= time - window) & (self._last > time - window))
        if not asked[self._node[there]].any():
            return
        end, middle = self._place(there, time), self._place(there, time - window)
        start = self._place(there, time - window - PAST_SECONDS)
        enough = (end - middle >= MIN_RECENT) & (middle - start >= MIN_PAST)
        series = there[enough]
        if not asked[self._node[series]].any():
            return
        end, middle, start = end[enough], middle[enough], start[enough]
        recent, past = (end - middle).astype(float), (middle - start).astype(float)
        change = _mean(self._sums, middle, end) - _mean(self._sums, start, middle)
        whole = _mean(self._whole_sums, middle, end) - _mean(self._whole_sums, start, middle)
        # A slowdown must still be there in the latest records.
        last = np.minimum(self._place(series, time - WINDOWS[0]), end - MIN_RECENT)
        last = np.maximum(middle, last)
        latest = _mean(self._sums, last, end) - _mean(self._sums, middle, end)
        ranks = self._columns.kind[self._head[series]] == RANKS
        nodes = self._nodes_alike(series)
        change -= np.where(ranks, 0.0, self._common(series, change, nodes))
        comparable = ranks | (nodes >= MIN_NODES)
        variance = self._noise[series] ** 2 * (1.0 / recent + 1.0 / past)
        for members in self._beside_each_other(series, asked):
            changes, noise2 = change[members], variance[members]
            weight = 1.0 / (noise2 + USUAL_WANDER**2)
            slowness = float((weight * changes).sum() / weight.sum())
            min_slowness = max(MIN_CHANGE, ALARM / np.sqrt((1.0 / noise2).sum()))
            if slowness < min_slowness or not comparable[members].all():
                continue
            wander = _wander(np.delete(change, members), np.delete(variance, members))
            # Jobs that share a node wander together, so more jobs do not average it out.
            error = float(np.sqrt(1.0 / (1.0 / noise2).sum() + wander))
            deviations = slowness / error
            if deviations < ALARM:
                continue
            error2 = noise2 + wander
            agree = (changes > SINGLE * np.sqrt(error2)) & (changes > SHARE * slowness)
            agree &= changes + latest[members] > SHARE * slowness
            agree &= changes + self._mostly(middle, end, members) > SHARE * slowness
            really = ~ranks[members] | (whole[members] > SHARE * slowness)
            if agree.all() and really.all() and self._enough_jobs(series[members]):
                first = series[members[0]]
                since = self._since(start[members[0]], end[members[0]])
                is_hidden = not self._columns.full[self._head[first]]
                if is_hidden and since > time - HIDDEN_SECONDS:
                    continue
                if self._is_gradual(int(first), start[members[0]], end[members[0]]):
                    continue
                if swings and self._swing(series[members], slowness, since, swings):
                    continue
                if not self._is_habit(series[members], since, now, window, slowness):
                    yield deviations, SuddenChange(int(self._node[first]), slowness, error, since)

    def _mostly(self, start: Ints, end: Ints, members: Ints) -> Floats:
        """How far above their mean more than MOSTLY of the rows from ``start`` to ``end`` are at
        least, negative if below, for each of ``members`` (members,).
        """
        bounds = zip(start[members].tolist(), end[members].tolist(), strict=True)
        least = [
            np.quantile(self._value[low:high], 1.0 - MOSTLY, method="lower") for low, high in bounds
        ]
        return np.array(least) - _mean(self._sums, start, end)[members]

    def _nodes_alike(self, series: Ints) -> Ints:
        """How many nodes of each one's type ``series`` are on (n,)."""
        nodes = np.unique(self._node[series])
        return np.bincount(self._types[nodes])[self._types[self._node[series]]]

    def _common(self, series: Ints, change: Floats, nodes: Ints) -> Floats:
        """How much runs on nodes of the same type changed (n,): heat, a busy file server."""
        kinds = self._types[self._node[series]]
        usual = np.nan_to_num(group_medians(change, kinds, int(kinds.max()) + 1))[kinds]
        common: Floats = np.where(nodes < MIN_NODES, 0.0, usual * nodes / (nodes + 3.0))
        return common

    def _beside_each_other(self, series: Ints, asked: NDArray[np.bool_]) -> list[Ints]:
        """Group the indices of ``series`` that ran together on an ``asked`` node."""
        places = np.flatnonzero(asked[self._node[series]])
        head = self._head[series[places]]
        numbers = group(self._node[series[places]], self._columns.neighbours[head])
        order = np.argsort(numbers, kind="stable")
        return np.split(places[order], np.flatnonzero(np.diff(numbers[order])) + 1)

    def _enough_jobs(self, series: Ints) -> bool:
        """Whether enough jobs slowed down: on a shared node, one may suffer from its neighbour."""
        is_shared = self._columns.kind[self._head[series[0]]] == IN_COMPANY
        return not is_shared or len(series) > 1

    def _since(self, start: int, end: int) -> float:
        """Return when the rows from ``start`` to ``end`` change most clearly."""
        values = self._value[start:end]
        counts = np.arange(1, len(values))
        sums = np.cumsum(values)
        later = (sums[-1] - sums[:-1]) / counts[::-1]
        gain = (later - sums[:-1] / counts) * np.sqrt(counts * counts[::-1])
        return float(self._at[start + 1 + int(np.argmax(gain))])

    def _is_gradual(self, series: int, start: int, end: int) -> bool:
        """Whether the rows from ``start`` to ``end`` of ``series`` become slower for ten minutes or
        more, and not at once. The best ramp is one of several kinds, a step is of one kind.
        """
        values, at = np.diff(self._sums[start : end + 1]), self._at[start:end]
        ramps = [
            _explained(values, np.clip((at - at[:, None]) / width + share, 0.0, 1.0))
            for width in WINDOWS
            for share in (0.0, 1.0)
        ]
        step = _explained(values, at > at[:-1, None])
        evidence = (max(ramps) - step) / (2.0 * float(self._noise[series]) ** 2)
        return evidence > log(GRADUAL_ODDS * len(ramps))

    def _swing(self, series: Ints, slowness: float, since: float, swings: Swings) -> bool:
        """Whether runs like one of ``series`` change by as much at other times."""
        heads = self._head[series]
        programs, kinds = self._columns.program[heads], self._columns.kind[heads]
        return any(
            swings.usual(program, kind, node, slowness, since)
            for program, kind, node in zip(
                programs.tolist(), kinds.tolist(), self._node[series].tolist(), strict=True
            )
        )

    def _is_habit(
        self, series: Ints, since: float, now: float, window: float, slowness: float
    ) -> bool:
        """Whether a run of the workload on another node slowed down at the same age by ``now``."""
        columns = self._columns
        for head in self._head[series].tolist():
            begin = columns.at[head] - columns.age[head]
            age = since - begin
            is_near = (columns.cell == columns.cell[head]) & (
                columns.target != columns.target[head]
            )
            is_near &= (np.abs(columns.age - age) < max(window, WINDOWS[1])) & (columns.at <= now)
            rows = np.flatnonzero(is_near)
            for run in np.unique(columns.job_run[rows]):
                members = rows[columns.job_run[rows] == run]
                later = columns.age[members] >= age
                sizes = later.sum(), (~later).sum()
                if min(sizes) < MIN_RECENT:
                    continue
                values = columns.value[members]
                change = float(np.median(values[later]) - np.median(values[~later]))
                noise = self._noise[series].max() * np.sqrt(1.0 / sizes[0] + 1.0 / sizes[1])
                if change > max(HABIT * slowness, 4.0 * noise):
                    return True
        return False


def _wander(change: Floats, variance: Floats) -> float:
    """Return how much other runs changed besides their noise, as a variance."""
    extra = extra_variance(change, variance, float(len(change)), FIRM_CLIP)
    return (USUAL_WEIGHT * USUAL_WANDER**2 + len(change) * extra) / (USUAL_WEIGHT + len(change))


def _at_least_usual(noise: Floats, counts: Ints, workloads: Ints) -> Floats:
    """Raise each run's ``noise`` (n,) to what its workload's noise makes likely: the few records
    that hopsd keeps of a run may be alike by chance. ``counts`` are the runs' records.
    """
    usual = np.full(len(noise), float(np.median(noise)) if len(noise) else 0.0)
    for number in np.unique(workloads):
        members = workloads == number
        if members.sum() >= MIN_RUNS:
            usual[members] = np.median(noise[members])
    likely = (counts * noise**2 + NOISE_WEIGHT * usual**2) / (counts + NOISE_WEIGHT)
    return np.maximum(noise, np.sqrt(likely))


def _explained(values: Floats, courses: NDArray[np.generic]) -> float:
    """The sum of squares that the best of ``courses`` (courses, n) explains of ``values`` (n,)."""
    centred = courses - courses.mean(axis=1, keepdims=True)
    product = np.maximum(centred @ values, 0.0)
    squares = (centred**2).sum(axis=1)
    return float(np.max(product**2 / np.maximum(squares, 1e-12)))


def _mean(sums: Floats, start: Ints, end: Ints) -> Floats:
    mean: Floats = (sums[end] - sums[start]) / (end - start)
    return mean


def _clip(values: Floats) -> tuple[Floats, float]:
    """Clip ``values`` to the neighbourhood of their running median; also return their noise."""
    steps = np.abs(np.diff(values))
    noise = max(1.4826 * float(np.median(steps)) / np.sqrt(2.0), 1e-4) if len(steps) else 0.01
    centre = median_filter(values, _CENTRE, mode="nearest")
    return centre + np.clip(values - centre, -CLIP * noise, CLIP * noise), noise


def find_changes(
    series: RunSeries, now: float, swings: Swings | None = None
) -> dict[int, SuddenChange]:
    """Return, by node, the changes that current and recently ended runs show at ``now``.

    ``swings`` are those of all runs; None assumes that runs do not change by themselves. Once a
    later run has been on the node for :data:`LATER_SECONDS`, an ended one is no evidence.
    """
    changes: dict[int, SuddenChange] = {}
    for time in series.ends(now):
        is_newest = series.seconds_after(time, now) < LATER_SECONDS
        changes |= {change.node: change for change in series.changes(time, now, is_newest, swings)}
    return changes

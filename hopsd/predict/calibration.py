"""Calibrates predictions by their outcomes: conformal intervals, learned online.

The residual of a prediction is the outcome minus the prediction, both as ``scale(seconds ahead)``.
The interval is the prediction plus quantiles of the residuals of earlier predictions of its class.
Events that have not happened yet count as censored (Kaplan-Meier): otherwise only early outcomes
would be known, and every interval would be too short.

Errors of predictions are correlated: those of a job from one round to the next, and those of a
queue at one moment. Each prediction has a weight, so that a class counts by its number of
independent observations. Otherwise a single busy day would replace the shipped residuals, and
intervals would be too short on the next day.

The quantiles at the ends of the intervals are adapted to how often each end proved wrong (adaptive
conformal inference, Gibbs and Candès, NeurIPS 2021). For this, all starts of one group predicted at
one moment are one queue, whatever their classes, and outcomes move the ends only as far as they are
independent. Groups are judged apart, as their ends move apart. Outcomes are known hours later: if
each of thousands moved the ends fully, these would swing between far too narrow and far too wide.
An outcome beyond an end is counted when that end has passed, even if the outcome is known before.
Otherwise early outcomes would count first, and intervals would be too short until the late ones are
known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import heappop, heappush
from math import expm1, inf, log1p, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np

from hopsd.model.arrays import Floats
from hopsd.predict.situation import RunTimeSource

NOMINAL = 0.8
"""Share of outcomes that intervals should contain."""

TAIL = (1.0 - NOMINAL) / 2.0
"""Share of outcomes that should be beyond each end."""

MAX_SHIFT = 2.5
"""Maximum distance by which ends move from their quantiles, in standard deviations of a normal."""

MIN_TAIL = 0.02
"""Minimum share beyond an end for which its position is read from the residuals. Further out, the
distance from the middle is extrapolated as under a normal distribution.
"""

UNSURE = 0.15
"""For starts, and for ends by past runs, the median is corrected only if the share of outcomes on
one side exceeds one half by more than this. Most starts are exactly at the end of a round, and many
runs are as long as earlier ones: a correction for a few others would make all of these wrong.
"""

GAIN = 0.1
"""How far an outcome moves an end, in standard deviations per independent outcome beyond it; it is
multiplied by the mean weight. All outcomes count equally here: intervals are to hold for the
published predictions, which have a job that waits or runs for a long time once per round.
"""

MAX_JUDGED = 500
"""Number of newest outcomes over which the mean weight is taken."""

WIDTHS = 0.02, 0.4, 1.0, 1.4, 2.0, 2.8
"""Bounds between classes by the spread of the playouts. On generated workloads, 80 % of the
residuals are within about half of the spread to each side. In long queues, run times average out,
and playouts differ less.
"""

UNIT_SECONDS = 30.0
"""Errors count absolutely (in seconds) below this distance, and relatively above it."""

MAX_HISTORY = 2000
"""Maximum number of predictions kept per class."""

MAX_STORED = 500
"""Number of newest outcomes per class that survive a restart."""

MAX_PER_ROUND = 20
"""Maximum number of predictions recorded per class and round: neighbours are alike, and the history
must span rounds."""

ENOUGH = 60.0
"""Total weight above which a class needs no residuals of its parents."""

MIN_DISTANCE_SECONDS = 60.0
"""Predictions less than this time apart are never independent, in seconds."""

PRIOR_WEIGHT = 30.0
"""Weight of the shipped residuals of a class, in outcomes."""


class Kind(StrEnum):
    START = "start"
    END = "end"


class PredictedEvent(StrEnum):
    """Events that are learnt separately: the start of a job that was just submitted, of one that
    has waited for a while, and of one that has run before; and the end.

    Among jobs that have waited, those that wait for a long time are predicted most often. Policies
    that preempt jobs stop many of them for only a round or two.
    """

    SUBMISSION = "submission"
    START = "start"
    RESTART = "restart"
    END = "end"


def start_event(*, has_run: bool, wait_seconds: float) -> PredictedEvent:
    """The event that starts a waiting job, which has waited for ``wait_seconds`` so far."""
    if has_run:
        return PredictedEvent.RESTART
    return (
        PredictedEvent.SUBMISSION if wait_seconds < MIN_DISTANCE_SECONDS else PredictedEvent.START
    )


class Group(StrEnum):
    """Predictions whose ends move together. The classes of ``SURE`` groups have nearly all outcomes
    at the expected time.
    """

    SUBMISSION = "submission"
    START = "start"
    RESTART = "restart"
    END = "end"
    SURE_SUBMISSION = "sure submission"
    SURE_START = "sure start"
    SURE_RESTART = "sure restart"
    SURE_END = "sure end"


def _group_of(key: Class, *, sure: bool) -> Group:
    return Group(f"sure {key[0]}" if sure else key[0])


Class = tuple[str, ...]
""":class:`PredictedEvent`, time ahead, spread of the playouts, source of the run time, and, for
starts, the sort of job: from the coarsest to the finest distinction.
"""


def scale(seconds: float) -> float:
    """Convert seconds ahead to the scale of residuals."""
    return log1p(max(0.0, seconds) / UNIT_SECONDS)


def unscale(value: float) -> float:
    """Convert back to seconds ahead; the inverse of :func:`scale`."""
    return UNIT_SECONDS * expm1(max(0.0, min(value, 25.0)))


def class_of(
    event: PredictedEvent,
    seconds_ahead: float,
    width: float,
    source: RunTimeSource,
    round_left: float,
    round_seconds: float,
    sort: str = "",
) -> Class:
    """The class of a prediction. ``seconds_ahead`` is the time until the predicted moment,
    ``width`` the scaled distance from the 10 % to the 90 % quantile of the playouts, ``sort`` that
    of :func:`sort_of` for starts.
    """
    bounds = (1.0, round_left, round_left + 3 * round_seconds, round_left + 15 * round_seconds)
    horizon = sum(seconds_ahead > bound for bound in bounds)
    spread = sum(width > bound for bound in WIDTHS)
    sorts = (sort,) if sort else ()
    return event.value, str(horizon), str(spread), source.value, *sorts


def sort_of(*, wide: bool, wait_seconds: float, seconds_ahead: float) -> str:
    """The sort of a waiting job. A ``wide`` job needs several servers; ``wait_seconds`` is its wait
    so far.

    Playouts ignore servers, and therefore let wide jobs start too early. If a job has waited longer
    than it is still expected to wait, its earlier predictions were likely wrong.
    """
    return ("wide" if wide else "narrow") + (" overdue" if wait_seconds > seconds_ahead else "")


@dataclass(frozen=True, slots=True)
class Interval:
    """Ends and middle of an interval, as residuals. ``tails`` are the shares of outcomes expected
    beyond the ends. ``sure``: enough outcomes came at the expected time for an interval without
    width. It nevertheless has a width if intervals without width were wrong too often.
    """

    low: float
    middle: float
    high: float
    tails: tuple[float, float] = (TAIL, TAIL)
    sure: bool = False


class Curve:
    """Kaplan-Meier estimate of the distribution of ``values``; where ``true`` is 0, the value is
    only a lower bound.
    """

    def __init__(self, values: Floats, weights: Floats, true: Floats) -> None:
        order = np.lexsort((-true, values))
        values, weights, true = values[order], weights[order], true[order]
        at_risk = np.cumsum(weights[::-1])[::-1]
        self._values = values
        self._survival = np.cumprod(1.0 - true * weights / np.maximum(at_risk, 1e-12))

    def quantile(self, share: float) -> float:
        """Quantile for a share; the largest value beyond what came true, 0 without values."""
        if not len(self._values):
            return 0.0
        index = np.searchsorted(-self._survival, -(1.0 - share) - 1e-12)
        return float(self._values[min(int(index), len(self._values) - 1)])

    def below(self, value: float) -> float:
        """Share of the values below ``value``."""
        index = int(np.searchsorted(self._values, value, side="left"))
        return 1.0 - float(self._survival[index - 1]) if index else 0.0

    def above(self, value: float) -> float:
        """Share of the values above ``value``."""
        index = int(np.searchsorted(self._values, value, side="right"))
        return float(self._survival[index - 1]) if index else float(len(self._values) > 0)


def split_tails(below: float, above: float) -> tuple[float, float]:
    """Shares of outcomes to leave beyond the low and the high end, given the shares of outcomes
    ``below`` and ``above`` the expected time. Each is :data:`TAIL`; what one end cannot use goes to
    the other.
    """
    low = min(below, max(TAIL, 2.0 * TAIL - above))
    return low, min(above, max(TAIL, 2.0 * TAIL - below))


_NORMAL = NormalDist()


def end_at(curve: Curve, middle: float, tail: float, shift: float, side: int) -> float:
    """The end with a share ``tail`` beyond it, moved outwards by ``shift``. ``side`` is -1 for the
    low end and 1 for the high one.
    """
    tail = min(max(tail, 1e-4), 0.5)
    least = min(tail, MIN_TAIL)
    deviation = max(0.0, shift - _NORMAL.inv_cdf(tail))
    share = max(least, _NORMAL.cdf(-deviation))
    end = curve.quantile(share if side < 0 else 1.0 - share)
    return middle + (end - middle) * max(1.0, deviation / -_NORMAL.inv_cdf(least))


class ClassHistory:
    """The newest :data:`MAX_HISTORY` predictions of a class, as arrays."""

    def __init__(self) -> None:
        self.time, self.centre, self.weight = np.zeros((3, MAX_HISTORY))
        self.residual = np.full(MAX_HISTORY, np.nan)
        """NaN if there is no outcome yet."""
        self.count = 0

    def add(self, time: float, centre: float, residual: float, weight: float) -> int:
        """Add a prediction, and return its number."""
        slot = self.count % MAX_HISTORY
        self.time[slot], self.centre[slot] = time, centre
        self.residual[slot], self.weight[slot] = residual, weight
        self.count += 1
        return self.count - 1

    def slot(self, number: int) -> int | None:
        """The slot of a prediction; None if newer predictions have replaced it."""
        return number % MAX_HISTORY if self.count - number <= MAX_HISTORY else None

    def residuals(self, now: float) -> tuple[Floats, Floats, Floats]:
        """Return values, weights, and 1 for an outcome or 0 for a lower bound. The stored weights
        determine only the total weight; within the class, all published predictions count equally.
        """
        rows = slice(0, min(self.count, MAX_HISTORY))
        residual = self.residual[rows]
        open_ = np.isnan(residual)
        bound = np.log1p(np.maximum(0.0, now - self.time[rows]) / UNIT_SECONDS) - self.centre[rows]
        counts = self.weight[rows] > 0.0
        weight = self.weight[rows].sum() / max(1, np.count_nonzero(counts))
        return np.where(open_, bound, residual), weight * counts, 1.0 - open_

    def outcomes(self, limit: int) -> list[list[float]]:
        """Residuals and weights of the newest outcomes, oldest first."""
        order = np.arange(max(0, self.count - MAX_HISTORY), self.count) % MAX_HISTORY
        order = order[~np.isnan(self.residual[order])][-limit:]
        pairs: list[list[float]] = np.stack([self.residual[order], self.weight[order]], 1).tolist()
        return pairs


@dataclass(slots=True)
class QueueMoment:
    """Start predictions of one group at ``time``, ``seconds`` after its previous ones."""

    time: float = -inf
    seconds: float = inf
    count: int = 0


@dataclass(slots=True, eq=False)
class Forecast:
    """A prediction awaiting its outcome.

    ``centre``, ``low`` and ``high`` are scaled; ``low`` and ``high`` are those published.
    ``weight`` is its weight in its class, ``weight_max`` the maximum. ``outcome`` is the actual
    time, scaled, or None so far. ``tails`` and ``sure`` are those of its :class:`Interval`.
    ``queue`` is the queue that a start belongs to.
    """

    kind: Kind
    time: float
    centre: float
    low: float
    high: float
    weight: float = 0.0
    weight_max: float = 1.0
    outcome: float | None = None
    tails: tuple[float, float] = (TAIL, TAIL)
    sure: bool = False
    queue: QueueMoment | None = None
    _places: list[tuple[ClassHistory, int]] = field(default_factory=list)

    @property
    def distance(self) -> float:
        """Seconds after which another prediction of the same time ahead is independent."""
        return max(MIN_DISTANCE_SECONDS, unscale(self.centre))

    @property
    def move(self) -> float:
        """Its weight among all predictions of its kind, whose ends move together."""
        if self.queue is None:
            return self.weight
        weight = min(self.weight_max, self.queue.seconds / self.distance)
        return weight / sqrt(self.queue.count)

    def keep(self, history: ClassHistory) -> None:
        self._places.append((history, history.add(self.time, self.centre, np.nan, self.weight)))

    def weigh(self, weight: float) -> None:
        self.weight = weight = min(weight, self.weight_max)
        for history, number in self._places:
            if (slot := history.slot(number)) is not None:
                history.weight[slot] = weight

    def drop(self) -> None:
        """Exclude it from the calibration."""
        self.weigh(0.0)
        if self.queue is not None:
            self.queue.count -= 1
            self.queue = None

    def resolve(self, time: float) -> None:
        """Note that the event happened at ``time``."""
        self.outcome = scale(time - self.time)
        for history, number in self._places:
            if (slot := history.slot(number)) is not None:
                history.residual[slot] = self.outcome - self.centre


@dataclass(slots=True)
class _Batch:
    """Start predictions of one class in one round; ``weight`` is that of a single prediction."""

    weight: float
    forecasts: list[Forecast] = field(default_factory=list)

    def add(self, forecast: Forecast) -> None:
        """Add a prediction; together, n predictions count as sqrt(n)."""
        self.forecasts.append(forecast)
        for member in self.forecasts:
            member.weigh(self.weight / sqrt(len(self.forecasts)))


@dataclass(slots=True)
class Calibration:
    """Learns intervals from outcomes. ``prior`` has the residuals of classes as measured elsewhere,
    ascending and equally weighted. ``shifts`` says how far the low and the high ends are moved
    outwards, see :data:`MAX_SHIFT`.
    """

    prior: Mapping[Class, Sequence[float]] = field(default_factory=dict)
    shifts: dict[Group, tuple[float, float]] = field(
        default_factory=lambda: dict.fromkeys(Group, (0.0, 0.0))
    )
    _histories: dict[Class, ClassHistory] = field(default_factory=dict)
    _sorted_residuals: dict[Class, tuple[Floats, Floats, Floats]] = field(default_factory=dict)
    _curves: dict[Class, Curve] = field(default_factory=dict)
    _round_counts: dict[Class, int] = field(default_factory=dict)
    _batches: dict[Class, _Batch] = field(default_factory=dict)
    _latest: dict[Class, float] = field(default_factory=dict)
    _queues: dict[Group, QueueMoment] = field(default_factory=dict)
    _judged_weights: dict[Group, deque[float]] = field(
        default_factory=lambda: {group: deque(maxlen=MAX_JUDGED) for group in Group}
    )
    _deadlines: list[tuple[float, int, bool, Group, Forecast]] = field(default_factory=list)
    _forecast_count: int = 0

    def begin(self, now: float) -> None:
        """Start a new set of predictions, with intervals as of ``now``."""
        self._sorted_residuals.clear()
        self._curves.clear()
        self._round_counts.clear()
        self._batches.clear()
        while self._deadlines and self._deadlines[0][0] < now:
            self._judge(*heappop(self._deadlines)[2:])

    def interval(
        self, key: Class, now: float, playout_residuals: Floats, margin: float = 0.0
    ) -> Interval:
        """The interval of a prediction. ``playout_residuals`` supplement a class that has too few
        residuals. Outcomes within ``margin`` of the middle count as at the expected time.
        """
        curve = self._curve(key, now, playout_residuals)
        is_end, by_runs = key[0] == PredictedEvent.END, RunTimeSource.PAST_RUNS in key
        unsure = 0.0 if is_end and not by_runs else UNSURE
        least, most = curve.quantile(0.5 - unsure), curve.quantile(0.5 + unsure)
        middle = min(max(0.0, least), most)
        margin += 1e-9
        below, above = curve.below(middle - margin), curve.above(middle + margin)
        tails = split_tails(below, above)
        sure = below + above <= 2.0 * TAIL
        first, last = self.shifts[_group_of(key, sure=sure)]
        low = end_at(curve, middle, tails[0], first, -1)
        return Interval(low, middle, end_at(curve, middle, tails[1], last, 1), tails, sure)

    def _curve(self, key: Class, now: float, playout_residuals: Floats) -> Curve:
        if key in self._curves:
            return self._curves[key]
        if key not in self._sorted_residuals:
            self._sorted_residuals[key] = self._residuals(key, now)
        values, weights, true = self._sorted_residuals[key]
        missing = ENOUGH - float((weights * true).sum())
        if missing <= 1e-9:
            self._curves[key] = Curve(values, weights, true)
            return self._curves[key]
        count = len(playout_residuals)
        return Curve(
            np.concatenate([values, playout_residuals]),
            np.concatenate([weights, np.full(count, min(PRIOR_WEIGHT, missing) / count)]),
            np.concatenate([true, np.ones(count)]),
        )

    def _residuals(self, finest: Class, now: float) -> tuple[Floats, Floats, Floats]:
        values, weights, true = [np.zeros(0)], [np.zeros(0)], [np.zeros(0)]
        total = 0.0
        for depth in range(len(finest), 1, -1):
            key = finest[:depth]
            if total >= ENOUGH:
                break
            missing = ENOUGH - total if depth < len(finest) else inf
            if key in self._histories:
                value, weight, is_resolved = self._histories[key].residuals(now)
                if observed_weight := float((weight * is_resolved).sum()):
                    part = min(1.0, missing / observed_weight)
                    values.append(value)
                    weights.append(part * weight)
                    true.append(is_resolved)
                    total += part * observed_weight
            if total < ENOUGH and (prior := self.prior.get(key)) is not None:
                share = min(PRIOR_WEIGHT, ENOUGH - total) / len(prior)
                values.append(np.array(prior))
                weights.append(np.full(len(prior), share))
                true.append(np.ones(len(prior)))
                total += share * len(prior)
        return np.concatenate(values), np.concatenate(weights), np.concatenate(true)

    def record(
        self, finest: Class, forecast: Forecast, kept_forecasts: Sequence[Forecast] = ()
    ) -> bool:
        """Keep a forecast to learn from, in its class and the coarser ones; False if the class has
        enough of this round. ``kept_forecasts`` are those of the same job and kind, oldest first.
        """
        if self._round_counts.get(finest, 0) >= MAX_PER_ROUND:
            return False
        self._round_counts[finest] = self._round_counts.get(finest, 0) + 1
        for depth in range(len(finest), 1, -1):
            forecast.keep(self._histories.setdefault(finest[:depth], ClassHistory()))
        distance, group = forecast.distance, _group_of(finest, sure=forecast.sure)
        if (
            kept_forecasts
        ):  # those of one job count each time that its remaining, or past, time has doubled
            long = max(distance, forecast.time - kept_forecasts[0].time)
            seconds = max(0.0, forecast.time - kept_forecasts[-1].time)  # clocks may be set back
            forecast.weight_max = min(1.0, seconds / long)
        if forecast.kind is Kind.END:
            forecast.weigh(1.0)
        else:
            if finest not in self._batches:
                seconds = max(0.0, forecast.time - self._latest.get(finest, -inf))
                self._batches[finest] = _Batch(min(1.0, seconds / distance))
                self._latest[finest] = forecast.time
            self._batches[finest].add(forecast)
            queue = self._queues.get(group, QueueMoment())
            if forecast.time != queue.time:
                queue = QueueMoment(forecast.time, max(0.0, forecast.time - queue.time))
            queue.count += 1
            forecast.queue = self._queues[group] = queue
        self._forecast_count += 1
        for is_high_end, end in ((False, forecast.low), (True, forecast.high)):
            deadline = forecast.time + unscale(end) + is_high_end
            number = self._forecast_count
            heappush(self._deadlines, (deadline, number, is_high_end, group, forecast))
        return True

    def resolve(self, forecast: Forecast, time: float) -> None:
        """Note that the predicted event happened at ``time``."""
        forecast.resolve(time)

    def forget(self, forecast: Forecast) -> None:
        """Drop a forecast whose event will never happen."""
        forecast.drop()

    def _judge(self, is_high_end: bool, group: Group, forecast: Forecast) -> None:
        """Move this end of the group's intervals, after it has passed for ``forecast``."""
        if (weight := forecast.move) <= 0.0:
            return
        true = forecast.outcome
        if is_high_end:
            wrong = true is None or true > forecast.high + 1e-9
        else:
            wrong = true is not None and true < forecast.low - 1e-9
        weights = self._judged_weights[group]
        weights.append(weight)
        step = GAIN * sum(weights) / len(weights) * (wrong - forecast.tails[is_high_end])
        shifts = list(self.shifts[group])
        shifts[is_high_end] = min(max(shifts[is_high_end] + step, -MAX_SHIFT), MAX_SHIFT)
        self.shifts[group] = shifts[0], shifts[1]

    def as_dict(self) -> dict[str, Any]:
        """The state that survives a restart, as JSON; pending forecasts are dropped."""
        return {
            "shifts": {group.value: list(ends) for group, ends in self.shifts.items()},
            "outcomes": {
                "/".join(key): [[round(number, 4) for number in row] for row in rows]
                for key, history in self._histories.items()
                if (rows := history.outcomes(MAX_STORED))
            },
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore from :meth:`as_dict`; malformed entries are skipped."""
        shifts, histories = state.get("shifts"), state.get("outcomes")
        for group, ends in shifts.items() if isinstance(shifts, Mapping) else ():
            if group in set(Group) and _are_within(ends, -MAX_SHIFT, MAX_SHIFT):
                self.shifts[Group(group)] = ends[0], ends[1]
        for name, outcomes in histories.items() if isinstance(histories, Mapping) else ():
            key = tuple(str(name).split("/"))
            if key[0] in set(PredictedEvent) and isinstance(outcomes, list):
                history = self._histories.setdefault(key, ClassHistory())
                for row in outcomes:
                    if _are_within(row, -50.0, 50.0) and 0.0 <= row[1] <= 1.0:
                        history.add(0.0, 0.0, row[0], row[1])


def _are_within(pair: object, low: float, high: float) -> bool:
    """Whether ``pair`` is a list of two numbers within the bounds."""
    return (
        isinstance(pair, list)
        and len(pair) == 2
        and all(isinstance(number, float | int) and low <= number <= high for number in pair)
    )


def kaplan_meier(
    values: Floats, weights: Floats, true: Floats, shares: Iterable[float]
) -> tuple[float, ...]:
    """Quantiles of a :class:`Curve`."""
    return tuple(map(Curve(values, weights, true).quantile, shares))

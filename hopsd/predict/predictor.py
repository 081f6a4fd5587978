"""Predicts starts and ends, with intervals calibrated by past outcomes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import nan
from typing import Any

import numpy as np

from hopsd.model.arrays import Floats
from hopsd.model.ids import JobId
from hopsd.model.plan import PriorityName
from hopsd.predict.arrivals import Arrivals
from hopsd.predict.calibration import (
    UNIT_SECONDS,
    Calibration,
    Class,
    Forecast,
    Kind,
    PredictedEvent,
    class_of,
    scale,
    sort_of,
    start_event,
    unscale,
)
from hopsd.predict.limit_share import LimitShares
from hopsd.predict.past_errors import PastRunErrors
from hopsd.predict.playout import HORIZON_SECONDS, Draw, Playout, Timeline, draw_sample
from hopsd.predict.prior import family_of, prior_of
from hopsd.predict.schedule import schedule_playouts
from hopsd.predict.situation import RunTimeSource, Situation
from hopsd.predict.traits import Traits, traits_of

PLAYOUTS = 16

AHEAD_SECONDS = 2 * 3600.0
"""Time ahead for which future jobs are drawn."""

MAX_BEYOND_HORIZON = 0.2
"""No prediction if more than this share of the playouts end after the horizon."""

MAX_TIMETABLE = 400_000
"""Maximum product of jobs and servers for a timetable; above it, playouts ignore servers."""

MIN_MARGIN_SHARE = 0.01
"""Minimum margin of a start, relative to the time ahead: servers of a type differ by some percent
in speed, and it is not known which job gets which server. With known run times under backfill, 80 %
of the errors are below 1.3 % on a workload of the prior.
"""

MIN_MARGIN_SECONDS = 1.0
"""Minimum margin of an interval on each side of the expected time, even if everything is known."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """A prediction made at ``at``: the job starts or ends at ``expected``, and between ``low`` and
    ``high`` with a probability of 80 %, all in seconds of one clock. ``progress`` is the share of
    the work done, 0 to 1, or None if unknown. Calibration keeps ``forecast`` and
    ``residual_class``. ``certain`` says that the interval has no width besides the margin.
    """

    at: float
    job: JobId
    kind: Kind
    expected: float
    low: float
    high: float
    source: RunTimeSource
    progress: float | None = None
    forecast: Forecast | None = field(default=None, compare=False)
    residual_class: Class = ()
    certain: bool = False


@dataclass(slots=True)
class Predictor:
    """Predicts, and learns from outcomes. The same calls with the same seed give the same results.
    ``margin_seconds`` is the minimum margin of an interval on each side of the expected time.

    Not thread-safe.
    """

    traits: Traits
    seed: int = 0
    playouts: int = PLAYOUTS
    margin_seconds: float = MIN_MARGIN_SECONDS
    calibration: Calibration = field(default_factory=Calibration)
    arrivals: Arrivals = field(default_factory=Arrivals)
    limits: LimitShares = field(default_factory=LimitShares)
    past_errors: PastRunErrors = field(default_factory=PastRunErrors)
    _limits_in_use: dict[JobId, tuple[float, float, float]] = field(default_factory=dict)
    _open: dict[tuple[JobId, Kind], list[Forecast]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _calls: int = 0
    _round_end: float = nan

    @staticmethod
    def for_policy(policy: str, priority: PriorityName, seed: int = 0) -> Predictor:
        """Create a predictor with the shipped residuals of the policy's family."""
        traits = traits_of(policy, priority)
        return Predictor(traits, seed, calibration=Calibration(prior_of(traits)))

    def start_of(self, situation: Situation, job: JobId, *, keep: bool = True) -> Prediction | None:
        """Predict when a waiting job starts; None if unknown. ``keep``: learn from the outcome."""
        self.calibration.begin(situation.now)
        index = situation.ids.index(job)
        if not situation.competes[index]:
            return None
        times = self._play(situation, index)
        return self._prediction(situation, index, Kind.START, times[0][:, index], keep=keep)

    def all_of(self, situation: Situation) -> list[Prediction]:
        """Predict the starts of waiting and the ends of running jobs, where anything is known.

        Calibration keeps those of a round's first set, and each job's first. hopsd makes a set
        every 30 s: all of a job that runs for a week would take 19 MB, and say no more.
        """
        self.calibration.begin(situation.now)
        previous, self._round_end = self._round_end, situation.now + situation.round_left
        is_same_round = abs(self._round_end - previous) < 1.0
        if not situation.ids:
            return []
        starts, ends = self._play(situation, None)
        predictions: dict[int, Prediction | None] = {}
        order = np.random.default_rng((self.seed, self._calls, 1)).permutation(len(situation.ids))
        for index in order.tolist():  # calibration keeps the first of each class: randomise them
            if situation.gpus_held[index] > 0.0:
                if situation.sources[index] is RunTimeSource.NOTHING:
                    continue
                kind, times = Kind.END, ends[:, index]
            elif situation.competes[index]:
                kind, times = Kind.START, starts[:, index]
            else:
                continue
            keep = not (is_same_round and self._open.get((situation.ids[index], kind)))
            predictions[index] = self._prediction(situation, index, kind, times, keep=keep)
        return [
            prediction for _, prediction in sorted(predictions.items()) if prediction is not None
        ]

    def resolve(self, job: JobId, kind: Kind, time: float) -> None:
        """Note that the predicted event happened at ``time``."""
        if kind is Kind.END and (limit_use := self._limits_in_use.pop(job, None)) is not None:
            limit, ran, predicted_at = limit_use
            self.limits.note((ran + time - predicted_at) / limit)
        if kind is Kind.END:
            self.past_errors.end(job, time)
        for forecast in self._open.pop((job, kind), ()):
            self.calibration.resolve(forecast, time)

    def forget(self, job: JobId) -> None:
        """Drop the predictions of a cancelled job, whose events will not happen."""
        self._limits_in_use.pop(job, None)
        self.past_errors.forget(job)
        for kind in Kind:
            for forecast in self._open.pop((job, kind), ()):
                self.calibration.forget(forecast)

    def as_dict(self) -> dict[str, Any]:
        """The state that survives a restart, as JSON."""
        return self.calibration.as_dict() | {
            "family": family_of(self.traits),
            "arrivals": self.arrivals.as_dict(),
            "limit_shares": self.limits.as_dict(),
            "past_run_errors": self.past_errors.as_list(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore from :meth:`as_dict`; malformed entries are skipped, and what was learnt about
        the playouts of another family of policies.
        """
        family = family_of(self.traits)
        if state.get("family", family) == family:
            self.calibration.restore(state)
        self.arrivals.restore(state.get("arrivals"))
        self.limits.restore(state.get("limit_shares"))
        self.past_errors.restore(state.get("past_run_errors"))

    def _keep(self, key: Class, forecast: Forecast, job: JobId) -> None:
        """Keep a forecast to learn from."""
        forecasts = self._open[job, forecast.kind]
        if self.calibration.record(key, forecast, forecasts):
            forecasts.append(forecast)

    def _play(self, situation: Situation, only_start: int | None) -> tuple[Floats, Floats]:
        self._calls += 1
        rng = np.random.default_rng((self.seed, self._calls))
        self.arrivals.watch(situation.now)
        times, likeness = self.arrivals.draw(
            situation.now, AHEAD_SECONDS, len(situation.ids), self.playouts, rng
        )
        for index in np.flatnonzero(
            (situation.gpus_held > 0.0) & np.isfinite(situation.work_cap)
        ).tolist():
            limit = float(situation.work_cap[index] + situation.ran[index])
            self._limits_in_use[situation.ids[index]] = (
                limit,
                float(situation.ran[index]),
                situation.now,
            )
        self.past_errors.watch(situation)
        scale = self.past_errors.scale
        draw = draw_sample(situation, self.playouts, times, likeness, rng, self.limits, scale)
        if (table := self._timetable(situation, draw)) is not None:
            return table.starts, table.ends
        jobs = range(len(situation.ids)) if only_start is None else (only_start,)
        timeline = Playout(situation, self.traits, draw).run(list(jobs))
        return timeline.starts, timeline.ends

    def _timetable(self, situation: Situation, draw: Draw) -> Timeline | None:
        """Predict by a timetable of servers; None if the policy does not follow one, or it would be
        too large.
        """
        traits = self.traits
        if (
            traits.preempts
            or traits.elastic
            or len(situation.ids) * len(situation.nodes) > MAX_TIMETABLE
            or situation.bounds
            or draw.change_gpus.size
        ):
            return None
        return schedule_playouts(situation, traits, draw)

    def _prediction(
        self, situation: Situation, index: int, kind: Kind, times: Floats, *, keep: bool = True
    ) -> Prediction | None:
        times = np.where(np.isfinite(times), times, HORIZON_SECONDS)
        if (times >= HORIZON_SECONDS).mean() > MAX_BEYOND_HORIZON:
            return None
        low, mid, high = np.quantile(times, (0.1, 0.5, 0.9)).tolist()
        event, sort = PredictedEvent.END, ""
        if kind is Kind.START:
            wait_seconds = float(situation.waiting_time[index])
            event = start_event(has_run=bool(situation.started[index]), wait_seconds=wait_seconds)
            wide = situation.counts[index, 0] > max(node.gpus for node in situation.nodes)
            sort = sort_of(wide=wide, wait_seconds=wait_seconds, seconds_ahead=mid)
        key = class_of(
            event,
            mid,
            scale(high) - scale(low),
            situation.sources[index],
            situation.round_left,
            situation.round_seconds,
            sort,
        )
        centre = scale(mid)
        spread = np.log1p(times / UNIT_SECONDS) - centre
        share = MIN_MARGIN_SHARE if kind is Kind.START else 0.0
        margin = scale(mid + max(self.margin_seconds, share * mid)) - centre
        interval = self.calibration.interval(key, situation.now, spread, margin)
        median = unscale(centre + interval.middle)
        seconds = max(self.margin_seconds, share * median)
        first = max(0.0, min(unscale(centre + interval.low), median - seconds))
        latest, cap = HORIZON_SECONDS, float(situation.work_cap[index])
        if kind is Kind.END and cap > 0.0 and not self.traits.preempts:
            latest = min(latest, cap)  # it runs at most until its time limit
        last = max(min(unscale(centre + interval.high), latest), median + seconds)
        forecast = Forecast(
            kind,
            situation.now,
            centre,
            scale(first),
            scale(last),
            tails=interval.tails,
            sure=interval.sure,
        )
        job = situation.ids[index]
        if keep:
            self._keep(key, forecast, job)
        return Prediction(
            situation.now,
            job,
            kind,
            situation.now + median,
            situation.now + first,
            situation.now + last,
            situation.sources[index],
            situation.progress[index],
            forecast,
            key,
            certain=last - first <= 2.0 * seconds + 1e-6,
        )

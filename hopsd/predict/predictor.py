"""Predictions of starts and ends, with intervals that what came true has calibrated."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from hopsd.model.arrays import Floats
from hopsd.model.ids import JobId
from hopsd.model.plan import PriorityName
from hopsd.predict.arrivals import Arrivals
from hopsd.predict.calibration import (
    UNIT_SECONDS,
    Calibration,
    Class,
    Kind,
    Said,
    class_of,
    scale,
    unscale,
)
from hopsd.predict.limit_share import LimitShares
from hopsd.predict.playout import HORIZON_SECONDS, Drawn, Played, Playout, drawn
from hopsd.predict.prior import prior_of
from hopsd.predict.schedule import listed
from hopsd.predict.situation import Situation, Source
from hopsd.predict.traits import Traits, traits_of

PLAYOUTS = 16

AHEAD_SECONDS = 2 * 3600.0
"""For so long jobs to come are drawn."""

BEYOND_MOST = 0.2
"""Of the playouts, the most in which a job may not start or end within the horizon: else nothing
is said.
"""

TIMETABLE_MOST = 400_000
"""Jobs times servers of which timetables are made; above, servers are left out."""

LEAST_SHARE = 0.01
"""Nor is a start told more exactly than this, relative to how far ahead it is: servers of a type
differ by some percent in speed, and whose turn comes on which is not known. Of known run times
under backfill, 80 % of the errors are below 1.3 % on a workload of the prior.
"""

LEAST_SECONDS = 1.0
"""An interval reaches at least this far to each side of what is expected."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Said ``at`` some time: the job starts or ends at ``expected``, in ``low`` to ``high`` with
    80 %; all in seconds of one clock. ``progress``: of its work, 0 to 1, None: unknown. ``said``
    and ``of_class``: what calibration keeps of it.
    """

    at: float
    job: JobId
    kind: Kind
    expected: float
    low: float
    high: float
    source: Source
    progress: float | None = None
    said: Said | None = None
    of_class: Class = ()


@dataclass(slots=True)
class Predictor:
    """Predicts, and learns from what comes true. The same calls with the same seed give the same.

    Not for several threads at once.
    """

    traits: Traits
    seed: int = 0
    playouts: int = PLAYOUTS
    calibration: Calibration = field(default_factory=Calibration)
    arrivals: Arrivals = field(default_factory=Arrivals)
    limits: LimitShares = field(default_factory=LimitShares)
    _used: dict[JobId, tuple[float, float, float]] = field(default_factory=dict)
    _open: dict[tuple[JobId, Kind], list[Said]] = field(default_factory=lambda: defaultdict(list))
    _calls: int = 0

    @staticmethod
    def of_policy(policy: str, priority: PriorityName, seed: int = 0) -> Predictor:
        """One with the shipped residuals of the policy's family."""
        traits = traits_of(policy, priority)
        return Predictor(traits, seed, calibration=Calibration(prior_of(traits)))

    def start_of(self, of: Situation, job: JobId, *, keep: bool = True) -> Prediction | None:
        """When a job that waits will start; None: nothing is known. ``keep``: to learn from it."""
        self.calibration.begin(of.now)
        at = of.ids.index(job)
        if not of.competes[at]:
            return None
        played = self._played(of, at)
        return self._prediction(of, at, Kind.START, played[0][:, at], keep=keep)

    def all_of(self, of: Situation) -> list[Prediction]:
        """Starts of the waiting jobs, ends of the running ones, where something is known."""
        self.calibration.begin(of.now)
        if not of.ids:
            return []
        starts, ends = self._played(of, None)
        found: dict[int, Prediction | None] = {}
        order = np.random.default_rng((self.seed, self._calls, 1)).permutation(len(of.ids))
        for at in order.tolist():  # calibration keeps the first of each class: any of them
            if of.held[at] > 0.0:
                if of.sources[at] is not Source.NOTHING:
                    found[at] = self._prediction(of, at, Kind.END, ends[:, at])
            elif of.competes[at]:
                found[at] = self._prediction(of, at, Kind.START, starts[:, at])
        return [each for _, each in sorted(found.items()) if each is not None]

    def happened(self, job: JobId, kind: Kind, when: float) -> None:
        """What was predicted came true."""
        if kind is Kind.END and (used := self._used.pop(job, None)) is not None:
            limit, ran, at = used
            self.limits.note((ran + when - at) / limit)
        for said in self._open.pop((job, kind), ()):
            self.calibration.heard(said, when)

    def forget(self, job: JobId) -> None:
        """The job is gone without what was predicted, as one that was cancelled."""
        self._used.pop(job, None)
        for kind in Kind:
            for said in self._open.pop((job, kind), ()):
                self.calibration.forget(said)

    def _keep(self, key: Class, said: Said, job: JobId) -> None:
        """To learn from."""
        earlier = self._open[job, said.kind]
        if self.calibration.say(key, said, earlier[-1].at if earlier else None):
            earlier.append(said)

    def _played(self, of: Situation, only: int | None) -> tuple[Floats, Floats]:
        self._calls += 1
        rng = np.random.default_rng((self.seed, self._calls))
        self.arrivals.watch(of.now)
        times, like = self.arrivals.drawn(of.now, AHEAD_SECONDS, len(of.ids), self.playouts, rng)
        for at in np.flatnonzero((of.held > 0.0) & np.isfinite(of.most)).tolist():
            limit = float(of.most[at] + of.ran[at])
            self._used[of.ids[at]] = limit, float(of.ran[at]), of.now
        draw = drawn(of, self.playouts, times, like, rng, self.limits)
        if (table := self._timetable(of, draw)) is not None:
            return table.starts, table.ends
        played = Playout(of, self.traits, draw).run(only)
        return played.starts, played.ends

    def _timetable(self, of: Situation, draw: Drawn) -> Played | None:
        """By a timetable of servers, where the policy keeps to one and it is not too large."""
        traits = self.traits
        if traits.preempts or traits.elastic or len(of.ids) * len(of.nodes) > TIMETABLE_MOST:
            return None
        return listed(of, traits, draw)

    def _prediction(
        self, of: Situation, at: int, kind: Kind, when: Floats, *, keep: bool = True
    ) -> Prediction | None:
        when = np.where(np.isfinite(when), when, HORIZON_SECONDS)
        if (when >= HORIZON_SECONDS).mean() > BEYOND_MOST:
            return None
        low, mid, high = np.quantile(when, (0.1, 0.5, 0.9)).tolist()
        key = class_of(
            kind, mid, scale(high) - scale(low), of.sources[at], of.round_left, of.round_seconds
        )
        centre = scale(mid)
        spread = np.log1p(when / UNIT_SECONDS) - centre
        ends = [centre + q for q in self.calibration.quantiles(key, of.now, spread)]
        expected = unscale(ends[1])
        least = max(LEAST_SECONDS, LEAST_SHARE * expected if kind is Kind.START else 0.0)
        first = max(0.0, min(unscale(ends[0]), expected - least))
        last = max(min(unscale(ends[2]), HORIZON_SECONDS), expected + least)
        said = Said(kind, of.now, centre, scale(first), scale(last))
        job = of.ids[at]
        if keep:
            self._keep(key, said, job)
        return Prediction(
            of.now,
            job,
            kind,
            of.now + expected,
            of.now + first,
            of.now + last,
            of.sources[at],
            of.progress[at],
            said,
            key,
        )

"""Makes predictions honest by what came true: conformal intervals, learnt online.

A prediction's residual is the difference between what came true and what was predicted, both as
``scale(seconds ahead)``. The interval is the prediction plus quantiles of the residuals of earlier
predictions of its class. What has not come true yet counts as censored (Kaplan-Meier): without
that, only early outcomes would be known, and every interval would be too short.

Predictions err together: a job's from one round to the next, those of a queue at one moment. Each
has a weight, so that a class counts as often as it was observed independently; without that a
single busy day would replace the shipped residuals, and intervals be too short on the next. Both
ends of the intervals are stretched by how often they proved wrong (conformal control, Gibbs and
Candès, NeurIPS 2021; Angelopoulos, Candès and Tibshirani, NeurIPS 2023): a prediction that is
overdue counts as wrong at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import heappop, heappush
from math import exp, expm1, inf, log1p, sqrt
from typing import Any

import numpy as np

from hopsd.model.arrays import Floats
from hopsd.predict.situation import Source

NOMINAL = 0.8
"""The share of intervals that are to come true."""

STRETCH = -1.0, 2.0
"""Bounds of the logarithm by which an end of the intervals is stretched."""

GAIN = 0.05
"""How much an outcome of weight 1 changes it."""

UNIT_SECONDS = 30.0
"""Errors count in seconds for what is sooner than this, relatively for what is later."""

KEPT = 2000
"""Predictions of a class."""

STORED = 500
"""Of these, the newest outcomes that survive a restart."""

PER_ROUND = 20
"""New ones of a class at a time: neighbours are alike, and many rounds are to be remembered."""

ENOUGH = 60.0
"""Weight of a class whose residuals speak for themselves; less is joined by its parents."""

LEAST_AHEAD = 60.0
"""Seconds that are apart enough for two predictions to err independently, however short both."""

PRIOR_WEIGHT = 30.0
"""Of the shipped residuals of a class, in outcomes."""


class Kind(StrEnum):
    START = "start"
    END = "end"


_KINDS = frozenset(kind.value for kind in Kind)

Class = tuple[str, ...]
"""Kind, time ahead, spread of the playouts, knowledge: from the coarsest to the finest."""


def scale(seconds: float) -> float:
    """Seconds ahead on the scale of residuals."""
    return log1p(max(0.0, seconds) / UNIT_SECONDS)


def unscale(value: float) -> float:
    """The seconds ahead of :func:`scale`."""
    return UNIT_SECONDS * expm1(max(0.0, min(value, 25.0)))


def class_of(
    kind: Kind,
    ahead: float,
    width: float,
    source: Source,
    round_left: float,
    round_seconds: float,
) -> Class:
    """``ahead``: seconds until the predicted moment; ``width``: from 10 to 90 % of the playouts,
    scaled.
    """
    bounds = (1.0, round_left, round_left + 3 * round_seconds, round_left + 15 * round_seconds)
    when = sum(ahead > bound for bound in bounds)
    spread = sum(width > bound for bound in (0.02, 0.4, 1.0))
    return kind.value, str(when), str(spread), source.value


class History:
    """The newest :data:`KEPT` predictions of a class, as arrays."""

    def __init__(self) -> None:
        self.at, self.centre, self.weight = np.zeros((3, KEPT))
        self.residual = np.full(KEPT, np.nan)
        """NaN: it has not come true."""
        self.count = 0

    def add(self, at: float, centre: float, residual: float, weight: float) -> int:
        """Returns its number."""
        slot = self.count % KEPT
        self.at[slot], self.centre[slot] = at, centre
        self.residual[slot], self.weight[slot] = residual, weight
        self.count += 1
        return self.count - 1

    def slot(self, number: int) -> int | None:
        """Where it is; None: newer ones have replaced it."""
        return number % KEPT if self.count - number <= KEPT else None

    def residuals(self, now: float) -> tuple[Floats, Floats, Floats]:
        """Values, weights, and 1 where the value is true, 0 where it is a lower bound."""
        used = slice(0, min(self.count, KEPT))
        residual = self.residual[used]
        open_ = np.isnan(residual)
        bound = np.log1p(np.maximum(0.0, now - self.at[used]) / UNIT_SECONDS) - self.centre[used]
        return np.where(open_, bound, residual), self.weight[used], 1.0 - open_

    def outcomes(self, most: int) -> list[list[float]]:
        """Residuals and weights of the newest outcomes, oldest first."""
        order = np.arange(max(0, self.count - KEPT), self.count) % KEPT
        order = order[~np.isnan(self.residual[order])][-most:]
        found: list[list[float]] = np.stack([self.residual[order], self.weight[order]], 1).tolist()
        return found


@dataclass(slots=True, eq=False)
class Said:
    """A prediction to be judged: ``centre`` and ``low`` to ``high`` are scaled; ``low`` and
    ``high`` as published. ``weight``: how much it counts; 0: it teaches nothing.
    """

    kind: Kind
    at: float
    centre: float
    low: float
    high: float
    weight: float = 0.0
    judged: bool = False
    _places: list[tuple[History, int]] = field(default_factory=list)

    def keep(self, history: History) -> None:
        self._places.append((history, history.add(self.at, self.centre, np.nan, self.weight)))

    def weigh(self, weight: float) -> None:
        self.weight = weight
        for history, number in self._places:
            if (slot := history.slot(number)) is not None:
                history.weight[slot] = weight

    def resolve(self, when: float) -> None:
        """It came true."""
        for history, number in self._places:
            if (slot := history.slot(number)) is not None:
                history.residual[slot] = scale(when - self.at) - self.centre


@dataclass(slots=True)
class _Batch:
    """Predictions of starts of a class that were made at once; ``weight``: of one alone."""

    weight: float
    said: list[Said] = field(default_factory=list)

    def add(self, said: Said) -> None:
        """Together they count for the root of how many they are."""
        self.said.append(said)
        for each in self.said:
            each.weigh(self.weight / sqrt(len(self.said)))


@dataclass(slots=True)
class Calibration:
    """``prior``: residuals of classes as measured elsewhere, ascending and equally weighted.
    ``stretch``: logarithms by which the low and the high ends are stretched.
    """

    prior: Mapping[Class, Sequence[float]] = field(default_factory=dict)
    stretch: dict[Kind, tuple[float, float]] = field(
        default_factory=lambda: dict.fromkeys(Kind, (0.0, 0.0))
    )
    _histories: dict[Class, History] = field(default_factory=dict)
    _sorted: dict[Class, tuple[Floats, Floats, Floats]] = field(default_factory=dict)
    _quantiles: dict[Class, tuple[float, float, float]] = field(default_factory=dict)
    _taken: dict[Class, int] = field(default_factory=dict)
    _batches: dict[Class, _Batch] = field(default_factory=dict)
    _latest: dict[Class, float] = field(default_factory=dict)
    _due: list[tuple[float, int, Said]] = field(default_factory=list)
    _said: int = 0

    def begin(self, now: float) -> None:
        """A new set of predictions: quantiles are computed anew, at the new moment."""
        self._sorted.clear()
        self._quantiles.clear()
        self._taken.clear()
        self._batches.clear()
        while self._due and self._due[0][0] < now:
            self._judge(heappop(self._due)[2], early=False, late=True)

    def quantiles(self, of: Class, now: float, played: Floats) -> tuple[float, float, float]:
        """Residuals: the low end, the median and the high end of the interval. ``played``: those
        of the playouts, which count where a class has too few of its own.
        """
        if of in self._quantiles:
            return self._quantiles[of]
        if of not in self._sorted:
            self._sorted[of] = self._residuals(of, now)
        values, weights, true = self._sorted[of]
        missing = ENOUGH - float((weights * true).sum())
        if missing > 1e-9:
            values = np.concatenate([values, played])
            each = min(PRIOR_WEIGHT, missing) / len(played)
            weights = np.concatenate([weights, np.full(len(played), each)])
            true = np.concatenate([true, np.ones(len(played))])
        tail = (1.0 - NOMINAL) / 2.0
        low, mid, high = kaplan_meier(values, weights, true, (tail, 0.5, 1.0 - tail))
        first, last = map(exp, self.stretch[Kind(of[0])])
        found = mid + (low - mid) * first, mid, mid + (high - mid) * last
        if missing <= 1e-9:
            self._quantiles[of] = found
        return found

    def _residuals(self, of: Class, now: float) -> tuple[Floats, Floats, Floats]:
        values, weights, true = [np.zeros(0)], [np.zeros(0)], [np.zeros(0)]
        have = 0.0
        for depth in range(len(of), 1, -1):
            key = of[:depth]
            if have >= ENOUGH:
                break
            missing = ENOUGH - have if depth < len(of) else inf
            if key in self._histories:
                value, weight, done = self._histories[key].residuals(now)
                if observed := float((weight * done).sum()):
                    part = min(1.0, missing / observed)
                    values.append(value)
                    weights.append(part * weight)
                    true.append(done)
                    have += part * observed
            if have < ENOUGH and (prior := self.prior.get(key)) is not None:
                each = min(PRIOR_WEIGHT, ENOUGH - have) / len(prior)
                values.append(np.array(prior))
                weights.append(np.full(len(prior), each))
                true.append(np.ones(len(prior)))
                have += each * len(prior)
        return np.concatenate(values), np.concatenate(weights), np.concatenate(true)

    def say(self, of: Class, said: Said, before: float | None = None) -> bool:
        """Keep it to learn from, in its class and the coarser ones; False: the class has enough of
        this moment. ``before``: of an end, when the end of this job was predicted last.
        """
        if self._taken.get(of, 0) >= PER_ROUND:
            return False
        self._taken[of] = self._taken.get(of, 0) + 1
        for depth in range(len(of), 1, -1):
            said.keep(self._histories.setdefault(of[:depth], History()))
        apart = max(LEAST_AHEAD, unscale(said.centre))
        if said.kind is Kind.END:
            said.weigh(1.0 if before is None else min(1.0, (said.at - before) / apart))
        else:
            if of not in self._batches:
                since = said.at - self._latest.get(of, -inf)
                self._batches[of] = _Batch(min(1.0, since / apart))
                self._latest[of] = said.at
            self._batches[of].add(said)
        self._said += 1
        heappush(self._due, (said.at + unscale(said.high) + 1.0, self._said, said))
        return True

    def heard(self, said: Said, when: float) -> None:
        """It came true at ``when``."""
        true = scale(when - said.at)
        said.resolve(when)
        self._judge(said, early=true < said.low - 1e-9, late=true > said.high + 1e-9)

    def forget(self, said: Said) -> None:
        """It will never come true."""
        said.weigh(0.0)
        said.judged = True

    def _judge(self, said: Said, *, early: bool, late: bool) -> None:
        if said.judged:
            return
        said.judged = True
        tail = (1.0 - NOMINAL) / 2.0
        low, high = (
            min(max(old + GAIN * said.weight * (wrong - tail), STRETCH[0]), STRETCH[1])
            for old, wrong in zip(self.stretch[said.kind], (early, late), strict=True)
        )
        self.stretch[said.kind] = low, high

    def as_dict(self) -> dict[str, Any]:
        """What is to survive a restart, as JSON: outcomes; what is open is lost."""
        return {
            "stretch": {kind.value: list(ends) for kind, ends in self.stretch.items()},
            "outcomes": {
                "/".join(key): [[round(number, 4) for number in row] for row in rows]
                for key, history in self._histories.items()
                if (rows := history.outcomes(STORED))
            },
        }

    def restore(self, kept: Mapping[str, Any]) -> None:
        """From :meth:`as_dict`; what is not as it should be is left out."""
        for kind, ends in dict(kept.get("stretch", {})).items():
            if kind in _KINDS and _are_within(ends, *STRETCH):
                self.stretch[Kind(kind)] = ends[0], ends[1]
        for name, outcomes in dict(kept.get("outcomes", {})).items():
            key = tuple(str(name).split("/"))
            if key[0] in _KINDS and isinstance(outcomes, list):
                history = self._histories.setdefault(key, History())
                for row in outcomes:
                    if _are_within(row, -50.0, 50.0) and 0.0 <= row[1] <= 1.0:
                        history.add(0.0, 0.0, row[0], row[1])


def _are_within(pair: object, low: float, high: float) -> bool:
    """Whether these are two numbers between the bounds."""
    return (
        isinstance(pair, list)
        and len(pair) == 2
        and all(isinstance(each, float | int) and low <= each <= high for each in pair)
    )


def kaplan_meier(
    values: Floats, weights: Floats, true: Floats, shares: Iterable[float]
) -> tuple[float, ...]:
    """Quantiles of ``values``, some of them only lower bounds (``true`` 0); 0 for no values.

    A share that is beyond what came true is the largest value.
    """
    shares = tuple(shares)
    if not len(values):
        return (0.0,) * len(shares)
    order = np.lexsort((-true, values))
    values, weights, true = values[order], weights[order], true[order]
    at_risk = np.cumsum(weights[::-1])[::-1]
    survival = np.cumprod(1.0 - true * weights / np.maximum(at_risk, 1e-12))
    found = np.searchsorted(-survival, [-(1.0 - share) - 1e-12 for share in shares])
    return tuple(float(values[min(int(i), len(values) - 1)]) for i in found)

"""Makes predictions honest by what came true: conformal intervals, learnt online.

A prediction's residual is the difference between what came true and what was predicted, both as
``scale(seconds ahead)``. The interval is the prediction plus quantiles of the residuals of earlier
predictions of its class. What has not come true yet counts as censored (Kaplan-Meier): without
that, only early outcomes would be known, and every interval would be too short. The share of
intervals that came true steers the level of new ones (Gibbs and Candès, NeurIPS 2021, 1): so where
many starts are certain, and their intervals always right, the others come closer to 80 %.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import expm1, inf, log1p
from typing import Any

import numpy as np

from hopsd.model.arrays import Floats
from hopsd.predict.situation import Source

NOMINAL = 0.8
"""The share of intervals that are to come true."""

LEVELS = 0.6, 0.93
"""Bounds of the level that is aimed at so that :data:`NOMINAL` comes true."""

GAIN = 0.003
"""How much one outcome changes that level."""

UNIT_SECONDS = 30.0
"""Errors count in seconds for what is sooner than this, relatively for what is later."""

KEPT = 2000
"""Residuals of a class."""

STORED = 500
"""Of these, the newest outcomes that survive a restart."""

PER_ROUND = 20
"""New ones of a class at a time: neighbours are alike, and many rounds are to be remembered."""

ENOUGH = 60
"""Residuals of a class that speak for themselves; fewer are joined by those of its parents."""

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


@dataclass(slots=True)
class Said:
    """A prediction to be judged: ``centre`` and ``low`` to ``high`` are scaled; ``low`` and
    ``high`` as published. ``residual`` None: it has not come true.
    """

    kind: Kind
    at: float
    centre: float
    low: float
    high: float
    residual: float | None = None

    def judge(self, when: float) -> bool:
        """Note what came true; returns whether the interval was right."""
        true = scale(when - self.at)
        self.residual = true - self.centre
        return self.low - 1e-9 <= true <= self.high + 1e-9


@dataclass(slots=True)
class Calibration:
    """``prior``: residuals of classes as measured elsewhere, ascending and equally weighted."""

    prior: Mapping[Class, Sequence[float]] = field(default_factory=dict)
    level: dict[Kind, float] = field(default_factory=lambda: dict.fromkeys(Kind, NOMINAL))
    _said: dict[Class, deque[Said]] = field(default_factory=dict)
    _sorted: dict[Class, tuple[Floats, Floats, Floats]] = field(default_factory=dict)
    _quantiles: dict[Class, tuple[float, float, float]] = field(default_factory=dict)
    _taken: dict[Class, int] = field(default_factory=dict)

    def begin(self) -> None:
        """A new set of predictions: quantiles are computed anew, at the new moment."""
        self._sorted.clear()
        self._quantiles.clear()
        self._taken.clear()

    def quantiles(self, of: Class, now: float, played: Floats) -> tuple[float, float, float]:
        """Residuals: the low end, the median and the high end of the interval. ``played``: those
        of the playouts, which count where a class has too few of its own.
        """
        if of not in self._sorted:
            self._sorted[of] = self._residuals(of, now)
        values, weights, true = self._sorted[of]
        missing = ENOUGH - float((weights * true).sum())
        if missing > 0.0:
            values = np.concatenate([values, played])
            each = min(PRIOR_WEIGHT, missing) / len(played)
            weights = np.concatenate([weights, np.full(len(played), each)])
            true = np.concatenate([true, np.ones(len(played))])
        elif of in self._quantiles:
            return self._quantiles[of]
        share = (1.0 - self.level[Kind(of[0])]) / 2.0
        low, mid, high = kaplan_meier(values, weights, true, (share, 0.5, 1.0 - share))
        self._quantiles[of] = low, mid, high
        return low, mid, high

    def _residuals(self, of: Class, now: float) -> tuple[Floats, Floats, Floats]:
        values: list[float] = []
        weights: list[float] = []
        true: list[float] = []
        have = 0.0
        for depth in range(len(of), 1, -1):
            key = of[:depth]
            if have >= ENOUGH:
                break
            missing = ENOUGH - have if depth < len(of) else inf
            found = self._said.get(key, ())
            own = [(s.residual, 1.0) for s in found if s.residual is not None]
            own += [(scale(now - s.at) - s.centre, 0.0) for s in found if s.residual is None]
            known = sum(done for _, done in own)
            if known:
                weight = min(1.0, missing / known)
                values += [v for v, _ in own]
                weights += [weight] * len(own)
                true += [done for _, done in own]
                have += weight * known
            if have < ENOUGH and (prior := self.prior.get(key)) is not None:
                each = min(PRIOR_WEIGHT, ENOUGH - have) / len(prior)
                values += prior
                weights += [each] * len(prior)
                true += [1.0] * len(prior)
                have += each * len(prior)
        return np.array(values), np.array(weights), np.array(true)

    def say(self, of: Class, said: Said) -> None:
        """Keep it to learn from, in its class and the coarser ones, unless these have enough."""
        for depth in range(len(of), 1, -1):
            key = of[:depth]
            if self._taken.get(key, 0) < PER_ROUND:
                self._taken[key] = self._taken.get(key, 0) + 1
                self._said.setdefault(key, deque(maxlen=KEPT)).append(said)

    def heard(self, said: Said, when: float) -> None:
        """It came true at ``when``."""
        right = said.judge(when)
        level = self.level[said.kind] + GAIN * (NOMINAL - right)
        self.level[said.kind] = min(max(level, LEVELS[0]), LEVELS[1])

    def as_dict(self) -> dict[str, Any]:
        """What is to survive a restart, as JSON: outcomes; what is open is lost."""
        return {
            "level": {kind.value: value for kind, value in self.level.items()},
            "residuals": {
                "/".join(key): [round(s.residual, 4) for s in said if s.residual is not None][
                    -STORED:
                ]
                for key, said in self._said.items()
            },
        }

    def restore(self, kept: Mapping[str, Any]) -> None:
        """From :meth:`as_dict`; what is not as it should be is left out."""
        for kind, value in dict(kept.get("level", {})).items():
            if kind in _KINDS and isinstance(value, float) and LEVELS[0] <= value <= LEVELS[1]:
                self.level[Kind(kind)] = value
        for name, residuals in dict(kept.get("residuals", {})).items():
            key = tuple(str(name).split("/"))
            if key[0] in _KINDS and isinstance(residuals, list):
                said = self._said.setdefault(key, deque(maxlen=KEPT))
                said.extend(
                    Said(Kind(key[0]), 0.0, 0.0, 0.0, 0.0, float(r))
                    for r in residuals
                    if isinstance(r, float | int) and abs(r) < 50.0
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
    survival = np.cumprod(1.0 - true * weights / at_risk)
    found = np.searchsorted(-survival, [-(1.0 - share) - 1e-12 for share in shares])
    return tuple(float(values[min(int(i), len(values) - 1)]) for i in found)

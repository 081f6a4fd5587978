"""Residuals of predictions as traces have shown them, for a site that has none of its own yet.

``python -m bench.predict --learn`` writes ``prior.json`` from generated workloads whose seeds are
used for nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from hopsd.predict.calibration import Class, kaplan_meier
from hopsd.predict.traits import Traits

FILE = "prior.json"
POINTS = 25
"""Quantiles that stand for the residuals of a class."""

FEWEST = 20
"""Residuals of a class that are worth telling."""


def family_of(traits: Traits) -> str:
    """Which policies have residuals in common."""
    if traits.elastic:
        return "elastic"
    return "preemptive" if traits.preempts else "steady"


def prior_of(traits: Traits) -> Mapping[Class, Sequence[float]]:
    """The shipped residuals of the policy's family."""
    return _read().get(family_of(traits), {})


@cache
def _read() -> dict[str, dict[Class, list[float]]]:
    try:
        text = files("hopsd.predict").joinpath(FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    kept: Mapping[str, Mapping[str, list[float]]] = json.loads(text)
    return {
        family: {tuple(name.split("/")): values for name, values in classes.items()}
        for family, classes in kept.items()
    }


@dataclass(frozen=True, slots=True)
class Residual:
    """Of one prediction; ``weight``: how much it counts."""

    traits: Traits
    of_class: Class
    value: float
    weight: float = 1.0


def learnt(residuals: Iterable[Residual]) -> dict[str, dict[str, list[float]]]:
    """The contents of ``prior.json``, for the families that occur."""
    by_class: dict[str, dict[Class, list[tuple[float, float]]]] = {}
    for each in residuals:
        classes = by_class.setdefault(family_of(each.traits), {})
        for depth in range(len(each.of_class), 1, -1):
            classes.setdefault(each.of_class[:depth], []).append((each.value, each.weight))
    shares = tuple(((np.arange(POINTS) + 0.5) / POINTS).tolist())
    found: dict[str, Any] = {}
    for family, classes in sorted(by_class.items()):
        found[family] = {}
        for key, pairs in sorted(classes.items()):
            if len(pairs) >= FEWEST:
                values, weights = np.array(pairs).T
                points = kaplan_meier(values, weights, np.ones(len(values)), shares)
                found[family]["/".join(key)] = [round(point, 3) for point in points]
    return found

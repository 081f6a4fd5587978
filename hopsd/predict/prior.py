"""Residuals of predictions as traces have shown them, for a site that has none of its own yet.

``python -m bench.predict --learn`` writes ``prior.json`` from generated workloads whose seeds are
used for nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from hopsd.predict.calibration import Class
from hopsd.predict.traits import Traits

FILE = "prior.json"
POINTS = 15
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


def learnt(
    said: Iterable[tuple[Traits, Class, float]],
) -> dict[str, dict[str, list[float]]]:
    """The contents of ``prior.json`` from the residuals of classes."""
    by_class: dict[str, dict[Class, list[float]]] = {}
    for traits, of, residual in said:
        for depth in range(len(of), 1, -1):
            own = by_class.setdefault(family_of(traits), {})
            own.setdefault(of[:depth], []).append(residual)
    shares = (np.arange(POINTS) + 0.5) / POINTS
    found: dict[str, Any] = {
        family: {
            "/".join(key): [round(q, 3) for q in np.quantile(values, shares).tolist()]
            for key, values in sorted(classes.items())
            if len(values) >= FEWEST
        }
        for family, classes in sorted(by_class.items())
    }
    return found

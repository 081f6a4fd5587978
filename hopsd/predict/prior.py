"""Provides residuals of predictions on generated traces, for a site that has none yet.

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

from hopsd.predict.calibration import Class, PredictedEvent, kaplan_meier
from hopsd.predict.traits import Traits

FILE = "prior.json"
POINTS = 25
"""Number of quantiles that represent the residuals of a class."""

MIN_RESIDUALS = 20
"""Classes with fewer residuals are left out."""


def family_of(traits: Traits) -> str:
    """The family of policies that share residuals."""
    if traits.elastic:
        return "elastic"
    return "preemptive" if traits.preempts else "steady"


def prior_of(traits: Traits) -> Mapping[Class, Sequence[float]]:
    """The shipped residuals of the policy's family; events without any use those of starts."""
    return _read_file().get(family_of(traits), {})


@cache
def _read_file() -> Mapping[str, Mapping[Class, Sequence[float]]]:
    try:
        text = files("hopsd.predict").joinpath(FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    document: Mapping[str, Mapping[str, list[float]]] = json.loads(text)
    return {
        family: _with_all_events(
            {tuple(name.split("/")): values for name, values in classes.items()}
        )
        for family, classes in document.items()
    }


def _with_all_events(classes: Mapping[Class, Sequence[float]]) -> Mapping[Class, Sequence[float]]:
    """Use the residuals of starts for submissions and restarts if these are missing."""
    known = {key[0] for key in classes}
    return dict(classes) | {
        (event.value, *key[1:]): of
        for event in (PredictedEvent.SUBMISSION, PredictedEvent.RESTART)
        if event not in known
        for key, of in classes.items()
        if key[0] == PredictedEvent.START
    }


@dataclass(frozen=True, slots=True)
class Residual:
    """Residual of one prediction, which counts with ``weight``."""

    traits: Traits
    residual_class: Class
    value: float
    weight: float = 1.0


def learn_prior(residuals: Iterable[Residual]) -> dict[str, dict[str, list[float]]]:
    """The contents of ``prior.json``, for the families that occur.

    Predictions made at submission also count among starts, as most workloads have few jobs that
    wait for a long time.
    """
    by_class: dict[str, dict[Class, list[tuple[float, float]]]] = {}
    for residual in residuals:
        classes = by_class.setdefault(family_of(residual.traits), {})
        event, *parts = residual.residual_class
        for counted in (
            (event, PredictedEvent.START.value) if event == PredictedEvent.SUBMISSION else (event,)
        ):
            key = (counted, *parts)
            for depth in range(len(key), 1, -1):
                classes.setdefault(key[:depth], []).append((residual.value, residual.weight))
    shares = tuple(((np.arange(POINTS) + 0.5) / POINTS).tolist())
    document: dict[str, Any] = {}
    for family, classes in sorted(by_class.items()):
        document[family] = {}
        for key, pairs in sorted(classes.items()):
            if len(pairs) >= MIN_RESIDUALS:
                values, weights = np.array(pairs).T
                points = kaplan_meier(values, weights, np.ones(len(values)), shares)
                document[family]["/".join(key)] = [round(point, 3) for point in points]
    return document

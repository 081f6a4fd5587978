"""Checks that a plan is the best of all that a reference allows."""

from __future__ import annotations

import json
import sys
from fractions import Fraction
from typing import Any

import pytest
from ruled_reference import RuledReference

from hopsd.formats.plan import plan_json
from hopsd.formats.snapshot import read_snapshot
from hopsd.policies.registry import get

Json = dict[str, Any]
TOLERANCE = Fraction(1, 10**9)


def plan_document(doc: Json) -> Json:
    snapshot, settings = read_snapshot(json.dumps(doc))
    return plan_json(get(settings.policy)(snapshot, settings))


def check(doc: Json, rules: type[RuledReference] = RuledReference) -> None:
    plan, reference = plan_document(doc), rules(doc)
    best, value = reference.optimum(), reference.objective(plan["placements"])
    assert value <= best
    assert best - value <= best * TOLERANCE, f"{float(value)} of {float(best)}"
    assert reference.jobs_that_fit(plan["placements"]) == []
    assert plan["status"] == "optimal"
    if best < sys.float_info.max:
        assert plan["objective"] == pytest.approx(float(value), rel=1e-9)
        assert plan["upper_bound"] >= float(best) * (1 - 1e-9)
    window, adjusted_jobs = reference.window()
    assert plan["window"] == [job["id"] for job in window]
    assert plan["adjusted"] == [job["id"] for job in adjusted_jobs]
    assert {w["id"]: w["code"] for w in plan["waiting"]} == reference.codes(plan["placements"])
    assert plan["configurations"] == sum(len(c) for _, _, c in reference.program())
    for job in reference.queue():
        assert plan["jobs"][job["id"]]["priority"] == pytest.approx(float(reference.priority(job)))

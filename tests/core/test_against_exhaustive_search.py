"""The planner against a search over every plan, on snapshots small enough for it."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest

from hopsd.formats.plan import plan_json
from hopsd.formats.snapshot import read_snapshot
from hopsd.policies.registry import get
from small_snapshots import small_snapshot
from exhaustive_reference import Reference

CASES = range(400)
Json = dict[str, Any]


def planned(doc: Json) -> Json:
    snapshot, settings = read_snapshot(json.dumps(doc))
    return json.loads(json.dumps(plan_json(get(settings.policy)(snapshot, settings))))


@pytest.mark.parametrize("seed", CASES)
def test_the_plan_is_the_best_of_all_plans(seed: int) -> None:
    doc = small_snapshot(seed)
    plan, reference = planned(doc), Reference(doc)
    window, adjusted = reference.window()
    assert plan["window"] == [job["id"] for job in window]
    assert plan["adjusted"] == [job["id"] for job in adjusted]
    assert plan["configurations"] == sum(len(c) for _, _, c in reference.program())
    best, got = reference.optimum(), reference.objective(plan["placements"])
    assert got <= best
    assert best - got <= best * Fraction(1, 10**9), f"{float(got)} of {float(best)}"
    assert reference.unused(plan["placements"]) == []

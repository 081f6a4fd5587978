"""Plans under rules and limits against a search over every plan."""

from __future__ import annotations

import json
import sys
from fractions import Fraction
from typing import Any

import pytest
from ruled_reference import RuledReference
from small_snapshots import ruled_snapshot, small_snapshot

from hopsd.core.placement import generate
from hopsd.formats.plan import plan_json
from hopsd.formats.snapshot import read_snapshot
from hopsd.policies.registry import get

Json = dict[str, Any]
TOLERANCE = Fraction(1, 10**9)


def planned(doc: Json) -> Json:
    snapshot, settings = read_snapshot(json.dumps(doc))
    return plan_json(get(settings.policy)(snapshot, settings))


def check(doc: Json) -> None:
    plan, reference = planned(doc), RuledReference(doc)
    best, got = reference.optimum(), reference.objective(plan["placements"])
    assert got <= best
    assert best - got <= best * TOLERANCE, f"{float(got)} of {float(best)}"
    assert reference.unused(plan["placements"]) == []
    assert plan["status"] == "optimal"
    if best < sys.float_info.max:
        assert plan["objective"] == pytest.approx(float(got), rel=1e-9)
        assert plan["upper_bound"] >= float(best) * (1 - 1e-9)
    window, adjusted = reference.window()
    assert plan["window"] == [job["id"] for job in window]
    assert plan["adjusted"] == [job["id"] for job in adjusted]
    assert {w["id"]: w["code"] for w in plan["waiting"]} == reference.codes(plan["placements"])
    assert plan["configurations"] == sum(len(c) for _, _, c in reference.program())
    for job in reference.queue():
        assert plan["jobs"][job["id"]]["priority"] == pytest.approx(float(reference.priority(job)))


@pytest.mark.parametrize("seed", range(500))
def test_the_plan_is_the_best_of_all_that_keep_the_rules(seed: int) -> None:
    check(ruled_snapshot(seed))


@pytest.mark.parametrize("seed", range(500, 600))
def test_columns_that_are_not_written_out(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "WRITTEN_MAX", 0)
    monkeypatch.setattr(generate, "_SHARED", 0)
    check(ruled_snapshot(seed))


@pytest.mark.parametrize("seed", [60593, 61034])
def test_a_job_that_takes_nothing_of_an_exceeded_limit_may_run(seed: int) -> None:
    """Kept jobs hold more than a limit allows; the job's part of ``per_gpu`` is 0."""
    check(ruled_snapshot(seed))


@pytest.mark.parametrize("seed", range(60))
def test_both_references_agree_where_there_are_no_rules(seed: int) -> None:
    check(small_snapshot(seed))

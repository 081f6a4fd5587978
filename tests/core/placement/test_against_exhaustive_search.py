"""The planner against a search over every plan, on snapshots that are small enough."""

from __future__ import annotations

import json
import sys
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from exhaustive_reference import Reference
from small_snapshots import small_snapshot

from hopsd.formats.plan import plan_json
from hopsd.formats.snapshot import read_snapshot
from hopsd.policies.registry import get

Json = dict[str, Any]
TOLERANCE = Fraction(1, 10**9)


def plan_document(doc: Json) -> Json:
    snapshot, settings = read_snapshot(json.dumps(doc))
    plan = plan_json(get(settings.policy)(snapshot, settings))
    return json.loads(json.dumps(plan, allow_nan=False))


@pytest.mark.parametrize("seed", range(400))
def test_the_plan_is_the_best_of_all_plans(seed: int) -> None:
    doc = small_snapshot(seed)
    plan, reference = plan_document(doc), Reference(doc)
    best, value = reference.optimum(), reference.objective(plan["placements"])
    assert value <= best
    assert best - value <= best * TOLERANCE, f"{float(value)} of {float(best)}"
    assert reference.jobs_that_fit(plan["placements"]) == []
    check_figures(plan, value, best)
    check_jobs(plan, reference)


def check_figures(plan: Json, value: Fraction, best: Fraction) -> None:
    """Check objective, bound and gap; above the largest double, they are that double."""
    if best < sys.float_info.max:
        assert plan["objective"] == pytest.approx(float(value), rel=1e-9)
        assert plan["upper_bound"] >= float(best) * (1 - 1e-9)
    assert plan["objective"] <= plan["upper_bound"]
    if plan["upper_bound"] > 0:
        gap = (plan["upper_bound"] - plan["objective"]) / plan["upper_bound"]
        assert plan["gap"] == pytest.approx(gap, abs=1e-12)
    assert plan["status"] == "optimal"


def check_jobs(plan: Json, reference: Reference) -> None:
    """Check the window, each job's figures, which jobs wait and why, and fragments."""
    window, adjusted_jobs = reference.window()
    queue = reference.queue()
    assert plan["window"] == [job["id"] for job in window]
    assert plan["adjusted"] == [job["id"] for job in adjusted_jobs]
    assert plan["configurations"] == sum(len(c) for _, _, c in reference.program())
    assert set(plan["jobs"]) == {job["id"] for job in queue}
    columns = {job: c for job, _, c in reference.program()}
    for job in queue:
        row, rho = plan["jobs"][job["id"]], reference.rho(job)
        assert row["priority"] == pytest.approx(float(reference.priority(job)))
        assert row["sensitivity"] == (None if rho is None else pytest.approx(float(rho)))
        place = plan["placements"].get(job["id"])
        if place is None:
            assert row["gain"] is row["throughput"] is row["source"] is None
            continue
        [column] = [c for c in columns[job["id"]] if c.placement == tuple(sorted(place.items()))]
        assert row["gain"] == pytest.approx(float(column.gain))
        assert row["throughput"] == pytest.approx(float(column.throughput))
        assert row["source"] == "table"
    assert {w["id"]: w["code"] for w in plan["waiting"]} == waiting_codes(plan, reference, columns)
    free = sum(reference.idle().values()) - sum(
        gpus for place in plan["placements"].values() for gpus in place.values()
    )
    waits = any(job["id"] not in plan["placements"] and reference.could_run(job) for job in queue)
    assert plan["fragments"] == (free if waits else 0)


def waiting_codes(plan: Json, reference: Reference, columns: Json) -> dict[str, str]:
    codes = {}
    for job in reference.doc["jobs"]:
        state = job.get("state", "waiting")
        if state != "waiting":
            codes[job["id"]] = state
        elif reference.in_plan(job) and job["id"] not in plan["placements"]:
            if not reference.could_run(job) or columns.get(job["id"]) == []:
                codes[job["id"]] = "no_configuration"
            else:
                codes[job["id"]] = "lost_to_others" if job["id"] in columns else "outside_window"
    return codes


@pytest.mark.parametrize("seed", range(120))
def test_a_large_lambda_gives_the_greedy_plan_by_priority(seed: int) -> None:
    doc = small_snapshot(seed, **{"lambda": 50})
    ranks = list(range(len(doc["jobs"])))
    Random(seed).shuffle(ranks)
    for job, rank in zip(doc["jobs"], ranks, strict=True):
        job["priority"] = 3.0**rank
    reference = Reference(doc)
    gains = reference.gains(plan_document(doc)["placements"])
    assert list(map(float, gains)) == pytest.approx(list(map(float, reference.greedy_limit())))


@pytest.mark.parametrize("seed", range(40))
def test_the_order_of_jobs_in_the_file_changes_nothing(seed: int) -> None:
    doc = small_snapshot(seed)
    plan = plan_document(doc)
    Random(seed).shuffle(doc["jobs"])
    shuffled_plan = plan_document(doc)
    assert {**shuffled_plan, "seconds": 0} == {**plan, "seconds": 0}


@pytest.mark.parametrize("seed", range(40))
def test_the_gap_is_kept_and_proven(seed: int) -> None:
    doc = small_snapshot(seed, gap=0.05)
    plan, reference = plan_document(doc), Reference(doc)
    best, value = reference.optimum(), reference.objective(plan["placements"])
    assert value >= best * Fraction(95, 100) * (1 - TOLERANCE)
    assert plan["gap"] <= 0.05
    assert plan["status"] in {"optimal", "within_gap"}
    assert reference.jobs_that_fit(plan["placements"]) == []

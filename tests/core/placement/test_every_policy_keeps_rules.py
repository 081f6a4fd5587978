"""No policy of the registry gives a job what its rules or a limit forbid."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ruled_reference import RuledReference
from small_snapshots import ruled_snapshot

from hopsd.formats.plan import plan_json
from hopsd.formats.snapshot import read_snapshot
from hopsd.policies.registry import POLICIES, get

Json = dict[str, Any]


def check(doc: Json, name: str) -> int:
    """Every new placement keeps its job's rules, all together fit; how many there were."""
    snapshot, settings = read_snapshot(json.dumps(doc))
    made = plan_json(get(name)(snapshot, settings))
    reference = RuledReference(doc)
    jobs = {job["id"]: job for job in doc["jobs"]}
    given = {j: p for j, p in made["placements"].items() if reference.in_plan(jobs[j])}
    reference.after(given)
    free = reference.free()
    for job_id, place in given.items():
        job = jobs[job_id]
        if place == job["running"]:
            continue
        for node, gpus in place.items():
            closed = node in reference.closed()
            assert gpus <= reference.could_take(job, node, free[node], closed=closed)
        counts, rule, k = set(place.values()), job.get("shape", "any"), job.get("per_node")
        assert rule != "node" or len(place) == 1
        assert rule != "even" or len(counts) == 1
        assert k is None or counts == {k}
    assert not set(given) & {w["id"] for w in made["waiting"]}
    return len(given)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_no_policy_breaks_a_rule_or_a_limit(name: str) -> None:
    placed = sum(check(ruled_snapshot(seed, time_limit=2), name) for seed in range(60))
    assert placed > 20


def alone(seed: int) -> Json | None:
    """One job with rules that could run on an idle cluster, and nobody else; None: it could not."""
    doc = ruled_snapshot(seed, time_limit=2)
    job = next((j for j in doc["jobs"] if not j["running"] and j["priority"] != 0), None)
    if job is None:
        return None
    for node in doc["nodes"]:
        node["idle"] = node["gpus"]
        for key in ("cores", "memory_mb"):
            if f"idle_{key}" in node:
                node[f"idle_{key}"] = node[key]
    job |= {"state": "waiting", "priority": 1.0}
    doc |= {"jobs": [job], "limits": [], "round": {"first": True, "seconds": 1800}}
    return doc if RuledReference(doc).could_run(job) else None


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_no_policy_starves_a_job_for_its_rules(name: str) -> None:
    docs = [doc for seed in range(45) if (doc := alone(seed)) is not None]
    assert len(docs) > 20
    for doc in docs:
        assert check(doc, name) == 1, doc["jobs"]


def test_a_policy_still_tells_when_it_wants_to_be_asked() -> None:
    assert get("sia").only_first
    assert not hasattr(get("hops"), "only_first")

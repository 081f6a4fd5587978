"""No policy of the registry gives a job what its rules or a limit forbid."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ruled_reference import RuledReference
from small_snapshots import ruled_snapshot

from hopsd.core.queue.competing import staying_jobs
from hopsd.formats.plan import plan_json
from hopsd.formats.snapshot import read_snapshot
from hopsd.model.plan import PlanSettings, Snapshot
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


def with_exempt(seed: int) -> Json:
    """A limit for some of the jobs, which others use up without being bound."""
    doc = ruled_snapshot(seed, time_limit=2)
    ids = sorted(job["id"] for job in doc["jobs"])
    bound = {"gpus": 1 + seed % 5} if seed % 3 else {"count": 1 + seed % 2}
    doc["limits"] = [{"name": "account", "jobs": ids[::2], "exempt": ids[1::2], **bound}]
    return doc


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_what_exempt_jobs_use_up_of_a_limit_is_given_to_nobody_else(name: str) -> None:
    started = 0
    for doc in map(with_exempt, range(20, 40)):
        snapshot, settings = read_snapshot(json.dumps(doc))
        given = get(name)(snapshot, settings).placements
        [limit] = snapshot.limits
        jobs = {job.id: job for job in snapshot.jobs}
        held = {job.id: job.running for job in staying_jobs(snapshot)} | given
        counted = [job for job in held if job in limit.jobs | limit.exempt]
        if any(job in limit.jobs and given[job] != jobs[job].running for job in given):
            assert limit.gpus is None or sum(held[job].gpus for job in counted) <= limit.gpus
            assert limit.count is None or len(counted) <= limit.count
            started += 1
    assert started


def at_limit(ids: str, *jobs: Json, gpus: int) -> Snapshot:
    """``jobs`` on two servers of four GPUs; ``ids`` are exempt from a limit of ``gpus`` for all."""
    nodes = [{"name": f"n{i}", "gpu_type": "a", "gpus": 4, "idle": 4} for i in range(2)]
    limit = {"name": "account", "gpus": gpus, "exempt": list(ids)}
    limit["jobs"] = [job["id"] for job in jobs if job["id"] not in ids]
    doc = {"now": 0, "round": {"first": True, "seconds": 60}, "nodes": nodes, "jobs": list(jobs)}
    return read_snapshot(json.dumps({**doc, "limits": [limit]}))[0]


def waits(name: str, priority: float, *reqs: int) -> Json:
    table = {"a": {"aggregated": {str(n): float(n) for n in reqs}}}
    whose = {"id": name, "user": "u", "submit": 0, "wait": 0, "age": 1, "preemptible": True}
    asks = {"reqs": list(reqs), "priority": priority, "sensitivity": None, "throughput": table}
    return {**whose, **asks, "running": {}}


def test_an_exempt_job_is_placed_as_without_the_limit_and_the_others_get_the_rest() -> None:
    def placed(snapshot: Snapshot) -> dict[str, int]:
        given = get("hops")(snapshot, PlanSettings()).placements
        return {job: place.gpus for job, place in given.items()}

    exempt, other = waits("1", 2.0, 3), waits("2", 1.0, 1, 4)
    assert placed(at_limit("1", exempt, other, gpus=4)) == {"1": 3, "2": 1}
    assert placed(at_limit("1", exempt, other, gpus=3)) == {"1": 3}
    both = waits("1", 2.0, 4), waits("3", 2.0, 4)
    assert placed(at_limit("13", *both, other, gpus=4)) == {"1": 4, "3": 4}


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

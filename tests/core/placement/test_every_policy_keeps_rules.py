"""No policy of the registry gives a job what its rules or a limit forbid."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from rack_reference import RackReference, rack_snapshot
from ruled_reference import RuledReference
from small_snapshots import ruled_snapshot

from hopsd.core.queue.competing import staying_jobs
from hopsd.formats.plan import plan_json
from hopsd.formats.snapshot import read_snapshot
from hopsd.model.ids import JobId, UserName
from hopsd.model.plan import PlanSettings, PriorityName, Snapshot
from hopsd.model.reason import ReasonCode
from hopsd.policies.registry import get, names

Json = dict[str, Any]


def check(doc: Json, name: str) -> int:
    """Check that new placements keep their jobs' rules and fit together; return their number."""
    snapshot, settings = read_snapshot(json.dumps(doc))
    plan = plan_json(get(name)(snapshot, settings))
    reference = RuledReference(doc)
    jobs = {job["id"]: job for job in doc["jobs"]}
    moved_placements = {j: p for j, p in plan["placements"].items() if reference.in_plan(jobs[j])}
    reference.after(moved_placements)
    free = reference.free()
    for job_id, place in moved_placements.items():
        job = jobs[job_id]
        if place == job["running"]:
            continue
        for node, gpus in place.items():
            is_closed = node in reference.closed_nodes()
            assert gpus <= reference.could_take(job, node, free[node], is_closed=is_closed)
        counts, rule, k = set(place.values()), job.get("shape", "any"), job.get("per_node")
        assert rule != "node" or len(place) == 1
        assert rule != "even" or len(counts) == 1
        assert k is None or counts == {k}
    assert not set(moved_placements) & {w["id"] for w in plan["waiting"]}
    return len(moved_placements)


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_no_policy_breaks_a_rule_or_a_limit(name: str) -> None:
    placements = sum(check(ruled_snapshot(seed, time_limit=2), name) for seed in range(30))
    assert placements > 10


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_no_policy_breaks_up_segments_or_spans_more_switches(name: str) -> None:
    bound = 0
    for seed in range(30):
        doc = rack_snapshot(seed, time_limit=2)
        snapshot, settings = read_snapshot(json.dumps(doc))
        placements = plan_json(get(name)(snapshot, settings))["placements"]
        reference = RackReference(doc)
        for job in doc["jobs"]:
            place = placements.get(job["id"], {})
            if reference.in_plan(job) and place != job["running"]:
                assert not place or reference.on_leaves(job, tuple(place))
                bound += len(place) > 1 and bool(job.get("segment") or job.get("max_switches"))
    assert bound > 0


def with_exempt(seed: int) -> Json:
    """A snapshot with a limit for some jobs that other jobs use up without being bound by it."""
    doc = ruled_snapshot(seed, time_limit=2)
    ids = sorted(job["id"] for job in doc["jobs"])
    bound = {"gpus": 1 + seed % 5} if seed % 3 else {"count": 1 + seed % 2}
    doc["limits"] = [{"name": "account", "jobs": ids[::2], "exempt": ids[1::2], **bound}]
    return doc


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_limits_used_up_by_exempt_jobs_start_nobody_else(name: str) -> None:
    starts = 0
    for doc in map(with_exempt, range(20, 40)):
        snapshot, settings = read_snapshot(json.dumps(doc))
        placements = get(name)(snapshot, settings).placements
        [limit] = snapshot.limits
        jobs = {job.id: job for job in snapshot.jobs}
        allocations = {job.id: job.running for job in staying_jobs(snapshot)} | placements
        members = [job for job in allocations if job in limit.jobs]
        changed_jobs = {job for job in members if allocations[job] != jobs[job].running}
        exempt_allocations = {job: jobs[job].running for job in allocations if job in limit.exempt}
        has_start = any(not jobs[job].running for job in changed_jobs)
        if has_start or (changed_jobs and not all(exempt_allocations.values())):
            restart_gpus = sum(
                max(0, allocations[job].gpus - ran.gpus) for job, ran in exempt_allocations.items()
            )
            gpus = sum(allocations[job].gpus for job in members) + restart_gpus
            count = len(members) + sum(not ran for ran in exempt_allocations.values())
            assert limit.gpus is None or gpus <= limit.gpus
            assert limit.count is None or count <= limit.count
            starts += 1
    assert starts


@pytest.mark.parametrize(
    ("name", "first"),
    [(name, True) for name in ("sia", "gavel", "hare")]
    + [(name, first) for name in ("hops", "hops+", "las", "srtf") for first in (True, False)],
)
def test_starts_are_postponed_in_queue_order(name: str, first: bool) -> None:
    """This also holds if ids are not in priority order, and if the policy sets no window."""
    member, exempt = waiting_job("9", 100.0, 4), waiting_job("10", 1.0, 4)
    plan = get(name)(snapshot_at_limit(("10",), member, exempt, first=first), PlanSettings())
    assert plan.placements.keys() == {JobId("9")}
    exempt, member = waiting_job("9", 100.0, 4), waiting_job("10", 1.0, 4)
    plan = get(name)(snapshot_at_limit(("9",), member, exempt, first=first), PlanSettings())
    assert plan.placements.keys() == {JobId("9")}
    assert "next plan" in plan.waiting[JobId("10")].text


def snapshot_at_limit(
    exempt: Sequence[str], *jobs: Json, first: bool = True, gpus: int = 4, servers: int = 2
) -> Snapshot:
    """``jobs`` on servers of four GPUs; all but ``exempt`` are bound by a limit of ``gpus``."""
    gpu_names = [name for job in jobs for name, n in job["running"].items() for _ in range(n)]
    nodes = [
        {"name": name, "gpu_type": "a", "gpus": 4, "idle": 4 - gpu_names.count(name)}
        for name in (f"n{number}" for number in range(servers))
    ]
    limit = {"name": "account", "gpus": gpus, "exempt": list(exempt)}
    limit["jobs"] = [job["id"] for job in jobs if job["id"] not in exempt]
    info = {"first": first, "seconds": 60}
    doc = {"now": 0, "round": info, "nodes": nodes, "jobs": list(jobs), "limits": [limit]}
    return read_snapshot(json.dumps(doc))[0]


def waiting_job(name: str, priority: float, *reqs: int, node: str = "") -> Json:
    table = {"a": {"aggregated": {str(n): float(n) for n in reqs}}}
    identity = {"id": name, "user": "u", "submit": 0, "wait": 0, "age": 1, "preemptible": True}
    wants = {"reqs": list(reqs), "priority": priority, "sensitivity": None, "throughput": table}
    return {**identity, **wants, "running": {node: min(reqs)} if node else {}}


def gpus_by_job(snapshot: Snapshot) -> dict[str, int]:
    placements = get("hops")(snapshot, PlanSettings()).placements
    return {job: place.gpus for job, place in placements.items()}


@pytest.mark.parametrize("first", [True, False])
def test_jobs_behind_an_exempt_job_start_with_the_next_plan(first: bool) -> None:
    exempt, waiter = waiting_job("1", 2.0, 3), waiting_job("2", 1.0, 1, 4)
    assert gpus_by_job(snapshot_at_limit("1", exempt, waiter, first=first)) == {"1": 3}
    runs = waiting_job("1", 2.0, 3, node="n0")
    assert gpus_by_job(snapshot_at_limit("1", runs, waiter, first=False, gpus=1)) == {"2": 1}
    fits = waiting_job("2", 1.0, 1)
    assert gpus_by_job(snapshot_at_limit("1", exempt, fits, first=first)) == {"1": 3, "2": 1}


@pytest.mark.parametrize("first", [True, False])
def test_an_exempt_job_behind_others_starts_with_the_next_plan(first: bool) -> None:
    waiter, exempt = waiting_job("1", 2.0, 4), waiting_job("2", 1.0, 3)
    snapshot = snapshot_at_limit("2", waiter, exempt, first=first)
    plan = get("hops")(snapshot, PlanSettings())
    assert {job: place.gpus for job, place in plan.placements.items()} == {"1": 4}
    reason = plan.waiting[JobId("2")]
    assert (reason.code, "account" in reason.text) == (ReasonCode.LIMIT, True)
    assert gpus_by_job(
        snapshot_at_limit("2", waiting_job("1", 2.0, 4, node="n0"), exempt, first=False)
    ) == {"2": 3}
    fits = snapshot_at_limit("2", waiting_job("1", 2.0, 1), exempt, first=first)
    assert gpus_by_job(fits) == {"1": 1, "2": 3}


def test_a_job_stays_if_the_start_it_should_make_room_for_is_postponed() -> None:
    """Of four jobs that leave for starts, those whose servers the exempt job does not take stay."""
    exempt = waiting_job("1", 9.0, 4)
    members = [waiting_job(str(n), 5.0, 2) for n in range(2, 8)]
    members_of_none = [waiting_job(str(n), 1.0, 2, node=f"n{n % 2}") for n in range(10, 14)]
    snapshot = snapshot_at_limit(
        ["1", *(job["id"] for job in members_of_none)], exempt, *members, *members_of_none
    )
    plan = get("hops")(snapshot, PlanSettings())
    assert {job: place.gpus for job, place in plan.placements.items() if place.gpus == 4} == {
        "1": 4
    }
    assert sorted(place.gpus for place in plan.placements.values()) == [2, 2, 4]
    assert not plan.placements.keys() & {job["id"] for job in members}
    assert plan.fragments == 0


@pytest.mark.parametrize("name", ["hops", "hops+"])
def test_a_running_overdue_job_is_not_counted_as_a_start(name: str) -> None:
    """The job should shrink from 4 GPUs to 1, so the queue lists it like a waiting job."""
    runs, exempt = {**waiting_job("1", 1.0, 1, 4), "running": {"n0": 4}}, waiting_job("2", 1.0, 3)
    rest_of_jobs = [waiting_job(str(number), 1.0, 4) for number in range(10, 50)]
    doc = snapshot_at_limit("2", runs, exempt, *rest_of_jobs, servers=16)
    waits = {"1": (0.01, 50), "2": (0.02, 500)}
    jobs = []
    for job in doc.jobs:
        share, ratio = waits.get(job.id, (0.8, 0))
        late_job = replace(
            job, priority=None, share=share, age_seconds=600, wait_seconds=600 * ratio
        )
        jobs.append(replace(late_job, user=UserName(job.id if job.id in waits else "w")))
    settings = PlanSettings(priority=PriorityName.FAIR_SHARE_FIRST, overdue_ratio=2.0)
    assert JobId("1") in get(name)(replace(doc, jobs=tuple(jobs)), settings).placements


def single_job_snapshot(seed: int) -> Json | None:
    """A snapshot with one job whose rules let it run on an idle cluster; None if they do not."""
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


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_no_policy_starves_a_job_because_of_its_rules(name: str) -> None:
    docs = [doc for seed in range(45) if (doc := single_job_snapshot(seed)) is not None]
    assert len(docs) > 20
    for doc in docs:
        assert check(doc, name) == 1, doc["jobs"]


def test_wrapped_policies_keep_their_attributes() -> None:
    assert get("sia").only_first
    assert not hasattr(get("hops"), "only_first")

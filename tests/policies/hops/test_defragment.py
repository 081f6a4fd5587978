"""Running jobs move so that a rack-bound job can start, only where this pays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.racks.instances import mixed_snapshot
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.model.job import Job
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.model.rules import Rules, ShapeRule
from hopsd.policies.registry import get

BOUND = JobId("bound")
CHEAP, DEAR = 60.0, 900.0
"""Seconds of a restart; a round has 1,800."""


def scene(running: dict[str, dict[int, int]], restart: float, wait: float) -> Snapshot:
    """Return two racks of two nodes with four GPUs, and a job that needs both nodes of a rack.

    ``running``: GPUs of each running job by node; ``wait``: seconds that the new job has waited.
    """
    plain = mixed_snapshot(16, 0.0, seed=0)
    gpus_in_use = {node: gpus for places in running.values() for node, gpus in places.items()}
    nodes = tuple(
        replace(node, idle=4 - gpus_in_use.get(index, 0), switches=("core", f"rack{index // 2}"))
        for index, node in enumerate(plain.nodes)
    )
    job = replace(plain.jobs[0], age_seconds=36_000.0, wait_seconds=3600.0, samples=1e7)
    present = [
        replace(
            job,
            id=JobId(name),
            reqs=tuple(sorted({4, sum(places.values())})),
            running=Allocation.of({nodes[index].name: gpus for index, gpus in places.items()}),
            run_seconds=7200.0,
            running_since=plain.now - 7200.0,
            restart_seconds=restart,
        )
        for name, places in running.items()
    ]
    rules = Rules(shape=ShapeRule.EVEN, per_node=4, segment=2)
    bound = replace(job, id=BOUND, reqs=(8,), wait_seconds=wait, rules=rules)
    return replace(plain, nodes=nodes, jobs=(*present, bound))


def jobs_moved_by(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Return the running jobs that get other GPUs, or none."""
    return [
        job.id
        for job in snapshot.jobs
        if job.running
        and plan.placements.get(job.id, job.running if job.id not in plan.waiting else None)
        != job.running
    ]


def remove_job(snapshot: Snapshot, job: JobId) -> Snapshot:
    return replace(
        snapshot,
        jobs=tuple(
            job_of_snapshot for job_of_snapshot in snapshot.jobs if job_of_snapshot.id != job
        ),
    )


SEPARATE = {"a": {0: 4}, "b": {2: 4}}
ELASTIC = {"a": {1: 4, 2: 4}}


@pytest.mark.parametrize("policy", ["hops", "hops+"])
@pytest.mark.parametrize("running", [SEPARATE, ELASTIC], ids=["movable", "elastic"])
def test_a_job_moves_to_free_the_rack_that_another_waits_for(
    policy: str, running: dict[str, dict[int, int]]
) -> None:
    snapshot = scene(running, CHEAP, wait=3600.0)
    plan = get(policy)(snapshot, PlanSettings())
    leaf = {node.name: node.leaf for node in snapshot.nodes}
    assert len({leaf[name] for name in plan.placements[BOUND].nodes}) == 1
    assert len(jobs_moved_by(snapshot, plan)) == 1
    assert plan.waiting == {}


@pytest.mark.parametrize("policy", ["hops", "hops+"])
@pytest.mark.parametrize("restart", [0.0, CHEAP, DEAR])
def test_no_job_moves_without_a_gain(policy: str, restart: float) -> None:
    snapshot = remove_job(scene(SEPARATE, restart, wait=3600.0), BOUND)
    assert jobs_moved_by(snapshot, get(policy)(snapshot, PlanSettings())) == []


@pytest.mark.parametrize(("policy", "wait"), [("hops", 0.0), ("hops+", 3600.0)])
def test_no_job_moves_if_the_restart_costs_more_than_the_start_gains(
    policy: str, wait: float
) -> None:
    snapshot = scene(SEPARATE, DEAR, wait)
    plan: Plan = get(policy)(snapshot, PlanSettings())
    assert jobs_moved_by(snapshot, plan) == []
    assert BOUND in plan.waiting


def test_a_job_that_may_not_move_stays() -> None:
    snapshot = scene(SEPARATE, 0.0, wait=36_000.0)

    def pin(job: Job) -> Job:
        return replace(job, preemptible=not job.running)

    snapshot = replace(snapshot, jobs=tuple(map(pin, snapshot.jobs)))
    plan = get("hops")(snapshot, PlanSettings())
    assert jobs_moved_by(snapshot, plan) == []
    assert BOUND in plan.waiting

"""The order in which Themis' rivals serve apps, on cases worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hopsd.model.allocation import Allocation
from hopsd.model.ids import AppName, GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, Node, ThroughputTable
from hopsd.model.plan import Plan, PlanSettings, RoundInfo, Snapshot
from hopsd.policies.registry import get

A = GpuType("a")
SPREADS = ThroughputTable({1: 1.0}, {2: 1.0})
HATES_IT = ThroughputTable({1: 1.0}, {2: 0.5})


def job(name: int, *reqs: int, table: ThroughputTable = SPREADS, **changes: object) -> Job:
    fields = {
        "id": JobId(str(name)),
        "user": UserName("u"),
        "submit": float(name),
        "wait_seconds": 0.0,
        "reqs": reqs,
        "throughput": {A: table},
        "samples": 1e4,
    }
    return Job(**(fields | changes))  # type: ignore[arg-type]


def plan(policy: str, jobs: list[Job], *sizes: int, first: bool = True) -> Plan:
    gpus_in_use: dict[str, int] = {}
    for candidate in jobs:
        for node, gpus in candidate.running:
            gpus_in_use[node] = gpus_in_use.get(node, 0) + gpus
    nodes = tuple(
        Node(NodeName(f"n{i}"), A, gpus, gpus - gpus_in_use.get(f"n{i}", 0))
        for i, gpus in enumerate(sizes)
    )
    snapshot = Snapshot(3600.0, RoundInfo(first, 360.0), nodes, tuple(jobs))
    return get(policy)(snapshot, PlanSettings(policy=policy))


def test_gandiva_puts_good_placements_first() -> None:
    """The second job loses nothing on two servers; the first takes the server for itself."""
    jobs = [job(1, 4, table=SPREADS), job(2, 4, table=HATES_IT)]
    fair_plan = plan("gandiva", jobs, 2, 2, 4)
    assert fair_plan.placements["1"].gpus == fair_plan.placements["2"].gpus == 4
    alone = plan("gandiva", [job(2, 4, table=HATES_IT), job(1, 2)], 2, 4)
    assert alone.placements["2"] == Allocation.of({"n1": 4})
    assert alone.placements["1"] == Allocation.of({"n0": 2})


def test_tiresias_serves_the_app_with_the_least_gpu_time_on_any_placement() -> None:
    """GPU time counts per app: the second job itself had none. Spread idle GPUs are good enough."""
    app = AppName("x")
    jobs = [
        job(1, 4, app=app, attained_gpu_seconds=900.0),
        job(2, 4, app=app),
        job(3, 4, attained_gpu_seconds=500.0, table=HATES_IT),
    ]
    fair_plan = plan("tiresias", jobs, 2, 4)
    assert fair_plan.placements == {"3": Allocation.of({"n0": 2, "n1": 2})}


def test_srsf_serves_the_least_remaining_work_and_srtf_counts_its_speed() -> None:
    """The first has less work but may use one GPU alone: 300 s against 800 s / 4."""
    jobs = [job(1, 1, samples=300.0), job(2, 4, samples=800.0)]
    assert list(plan("srsf", jobs, 4).placements) == ["1"]
    assert list(plan("srtf-apps", jobs, 4).placements) == ["2"]


def test_optimus_starts_all_jobs_then_grows_the_one_that_gains_most() -> None:
    slow = ThroughputTable({1: 1.0, 2: 0.55, 4: 0.3})
    fair_plan = plan("optimus", [job(1, 1, 2, 4, table=slow), job(2, 1, 2, 4)], 3)
    assert fair_plan.placements["1"].gpus == 1
    assert fair_plan.placements["2"].gpus == 2


def test_slaq_prefers_the_job_whose_loss_falls_fastest() -> None:
    """Equal jobs, but one is nearly done and has a flat loss."""
    jobs = [job(1, 4, samples=1e5, samples_done=9e4), job(2, 4, samples=1e5)]
    assert list(plan("slaq", jobs, 4).placements) == ["2"]


@pytest.mark.parametrize(
    "policy", ["gandiva", "tiresias", "optimus", "slaq", "srtf-apps", "srsf", "themis"]
)
def test_leases_and_later_plans_leave_running_jobs_alone(policy: str) -> None:
    runs = replace(
        job(1, 4, samples=1e9, attained_gpu_seconds=1e9),
        running=Allocation.of({"n0": 4}),
        running_since=3300.0,
    )
    second_plan = plan(policy, [runs, job(2, 4)], 4)
    assert second_plan.placements == {"1": runs.running}
    later = plan(policy, [replace(runs, running_since=0.0), job(2, 4)], 4, first=False)
    assert later.placements == {}

"""A plan that is ready too late is used in the next round (section 4.7 of the paper)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from hopsd.errors import PlanLateError
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, JobState, Node, ThroughputTable
from hopsd.model.plan import Plan, PlanSettings, RoundInfo, Snapshot
from hopsd.service.deadline import WithDeadline, drop_stale

N0 = Node(NodeName("n0"), GpuType("a100"), 4, 4)
ONE_GPU = Allocation.of({"n0": 1})
TABLE = {GpuType("a100"): ThroughputTable({1: 1.0})}
JOB = Job(JobId("1"), UserName("ann"), 0.0, 10.0, (1,), TABLE)
SNAPSHOT = Snapshot(0.0, RoundInfo(first=True, seconds=60.0), (N0,), (JOB,))
SHORT_LIMIT = PlanSettings(time_limit_seconds=0.05)
IN_TIME = PlanSettings(time_limit_seconds=60.0)


class Slow:
    """A policy that blocks until it is released."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.calls = 0

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:
        self.calls += 1
        assert self.go.wait(60.0)
        return Plan({JobId("1"): ONE_GPU})


@pytest.fixture
def slow() -> Iterator[Slow]:
    policy = Slow()
    yield policy
    policy.go.set()


def test_a_plan_in_time_is_used(slow: Slow) -> None:
    slow.go.set()
    assert WithDeadline(slow)(SNAPSHOT, IN_TIME).placements == {JobId("1"): ONE_GPU}


def test_under_paper_exact_a_late_plan_is_not_used(slow: Slow) -> None:
    deadline = WithDeadline(slow)
    with pytest.raises(PlanLateError, match="not used"):
        deadline(SNAPSHOT, replace(SHORT_LIMIT, paper_exact=True))
    slow.go.set()
    deadline._late.future.result(60.0)  # type: ignore[union-attr]
    assert deadline(SNAPSHOT, replace(IN_TIME, paper_exact=True)).placements
    assert slow.calls == 2


def test_a_late_plan_is_reported_and_then_used_without_a_second_solve(slow: Slow) -> None:
    deadline = WithDeadline(slow)
    with pytest.raises(PlanLateError, match="next round"):
        deadline(SNAPSHOT, SHORT_LIMIT)
    with pytest.raises(PlanLateError, match="still being solved"):
        deadline(SNAPSHOT, SHORT_LIMIT)
    slow.go.set()
    deadline._late.future.result(60.0)  # type: ignore[union-attr]
    assert deadline(SNAPSHOT, SHORT_LIMIT).placements == {JobId("1"): ONE_GPU}
    assert slow.calls == 1


def test_a_late_further_plan_does_not_replace_a_first_one(slow: Slow) -> None:
    deadline = WithDeadline(slow)
    further = replace(SNAPSHOT, round=RoundInfo(first=False, seconds=30.0))
    with pytest.raises(PlanLateError):
        deadline(further, SHORT_LIMIT)
    slow.go.set()
    deadline._late.future.result(60.0)  # type: ignore[union-attr]
    deadline(SNAPSHOT, IN_TIME)
    assert slow.calls == 2


def test_placements_that_no_longer_fit_are_dropped() -> None:
    jobs = [replace(JOB, id=JobId(i)) for i in ("1", "2", "3")]
    two, three = Allocation.of({"n0": 2}), Allocation.of({"n0": 3})
    plan = Plan(
        {JobId("1"): two, JobId("2"): three, JobId("3"): two, JobId("9"): ONE_GPU},
        window=(JobId("2"), JobId("1"), JobId("3")),
    )
    placements = drop_stale(plan, replace(SNAPSHOT, jobs=tuple(jobs))).placements
    assert placements == {JobId("2"): three}
    lost_node = Plan({JobId("1"): Allocation.of({"gone": 1})})
    assert drop_stale(lost_node, SNAPSHOT).placements == {}


def test_a_late_first_plan_may_use_gpus_of_preemptible_jobs() -> None:
    holder = replace(JOB, id=JobId("2"), running=Allocation.of({"n0": 4}))
    full = replace(SNAPSHOT, nodes=(replace(N0, idle=0),), jobs=(JOB, holder))
    assert drop_stale(Plan({JobId("1"): ONE_GPU}), full).placements == {JobId("1"): ONE_GPU}
    full_of_rigid = replace(full, jobs=(JOB, replace(holder, preemptible=False)))
    assert drop_stale(Plan({JobId("1"): ONE_GPU}), full_of_rigid).placements == {}


def test_a_late_plan_keeps_a_job_in_place_if_its_new_nodes_were_lost() -> None:
    running = replace(JOB, running=ONE_GPU)
    outdated_plan = Plan({JobId("1"): Allocation.of({"n9": 1})})
    assert drop_stale(outdated_plan, replace(SNAPSHOT, jobs=(running,))).placements == {
        JobId("1"): ONE_GPU
    }


def test_a_late_plan_starts_no_job_that_was_held_meanwhile() -> None:
    held_job = replace(JOB, state=JobState.HELD)
    assert (
        drop_stale(Plan({JobId("1"): ONE_GPU}), replace(SNAPSHOT, jobs=(held_job,))).placements
        == {}
    )

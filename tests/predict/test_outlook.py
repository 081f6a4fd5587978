"""Predictions of a live cluster: learnt from rounds, shown with their age, kept over a restart."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from hopsd.model.allocation import Allocation
from hopsd.model.history import JobRecord
from hopsd.model.ids import GpuType, JobId, NodeName, UserName, WorkloadName
from hopsd.model.job import Job, Node, ThroughputTable
from hopsd.model.plan import PriorityName, RoundInfo, Snapshot
from hopsd.model.reading import SlurmState
from hopsd.model.rules import Limit
from hopsd.model.step import OutcomeStatus, Step, StepKind, StepOutcome
from hopsd.predict.hypothetical import JobRequest
from hopsd.predict.outlook import Outlook, RoundReport, apply_outcomes
from hopsd.serve.when import when

T, N0 = GpuType("t"), NodeName("n0")
USER, NET = UserName("ann"), WorkloadName("net")
SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schema"
TABLE = {T: ThroughputTable({1: 1.0}, {2: 1.0})}


def job(name: str, seconds: float, gpus: int, *, runs: bool = False, at: float = 0.0) -> Job:
    return Job(
        JobId(name), USER, at, 0.0, (gpus,), TABLE, samples=seconds * gpus,
        running=Allocation(((N0, gpus),)) if runs else Allocation(),
    )  # fmt: skip


def record(of: Job, now: float, *, end: float | None = None) -> JobRecord:
    state = SlurmState.COMPLETED if end is not None else SlurmState.RUNNING
    return JobRecord(
        of.id, USER, "train", "hops:reqs=1", NET, of.submit, now, state,
        allocation=of.running, allocation_since=now if of.running else None, end=end,
    )  # fmt: skip


def left(now: float, *jobs: Job, gone: tuple[JobRecord, ...] = ()) -> RoundReport:
    held = sum(each.running.gpus for each in jobs)
    snapshot = Snapshot(
        now, RoundInfo(first=False, seconds=60.0), (Node(N0, T, 4, 4 - held),), jobs
    )
    records = {each.id: record(each, now) for each in jobs} | {each.id: each for each in gone}
    return RoundReport(snapshot, (), {}, records, now + 60.0, 360.0)


def outlook() -> Outlook:
    return Outlook("slurm", PriorityName.LATENCY_RATIO)


def is_valid(document: Any, schema: str) -> bool:
    return Draft202012Validator(
        json.loads((SCHEMAS / f"{schema}.schema.json").read_text())
    ).is_valid(document)


def test_what_runs_ends_and_what_waits_starts_then() -> None:
    of = outlook()
    assert of.document is None
    assert of.row(JobId("1")) is None
    of.predict(left(100.0, job("1", 500.0, 4, runs=True), job("2", 50.0, 4)))
    end, start = of.row(JobId("1")), of.row(JobId("2"))
    assert end is not None
    assert start is not None
    assert (end["kind"], start["kind"]) == ("end", "start")
    assert end["expected"] == pytest.approx(600.0, abs=2.0)
    assert start["expected"] == pytest.approx(600.0, abs=5.0)
    assert end["progress"] == 0.0
    document = of.document
    assert document is not None
    assert document["at"] == 100.0
    for each in (end, start, document, None):
        assert is_valid(json.loads(json.dumps(each)), "predictions")
    assert not is_valid(end | {"expected": "soon"}, "predictions")


def test_errors_are_counted_when_predictions_come_true() -> None:
    of = outlook()
    first, second = job("1", 500.0, 4, runs=True), job("2", 50.0, 4)
    of.predict(left(100.0, first, second))
    of.predict(
        left(650.0, replace(second, running=Allocation(((N0, 4),))),
             gone=(record(first, 650.0, end=640.0),))
    )  # fmt: skip
    document = of.document
    assert document is not None
    ends, starts = document["errors"]["end"], document["errors"]["start"]
    assert sum(ends["counts"]) == sum(starts["counts"]) == 1
    assert ends["seconds"] == pytest.approx(40.0, abs=3.0)
    assert starts["seconds"] == pytest.approx(50.0, abs=6.0)


def test_a_cancelled_job_is_no_outcome() -> None:
    of = outlook()
    of.predict(left(100.0, job("1", 500.0, 4, runs=True)))
    of.predict(left(200.0))
    document = of.document
    assert document is not None
    assert sum(document["errors"]["end"]["counts"]) == 0
    assert of.row(JobId("1")) is None


def test_what_a_round_did_counts() -> None:
    waits, runs = job("1", 10.0, 2), job("2", 10.0, 4, runs=True)
    before = left(0.0, waits, runs).snapshot
    outcomes = [
        StepOutcome(Step(runs.id, StepKind.PREEMPT, current=runs.running), OutcomeStatus.DONE),
        StepOutcome(
            Step(waits.id, StepKind.START, target=Allocation(((N0, 2),))),
            OutcomeStatus.DONE,
            Allocation(((N0, 2),)),
        ),
    ]
    found = apply_outcomes(before, outcomes)
    assert [each.running.gpus for each in found.jobs] == [2, 0]
    assert found.nodes[0].idle == 2
    failed = [replace(outcome, status=OutcomeStatus.FAILED) for outcome in outcomes]
    assert apply_outcomes(before, failed) == before


def test_when_a_job_would_start() -> None:
    of = outlook()
    asked = JobRequest(USER, (4,), samples=40.0, workload=NET)
    assert of.predict_start(asked) is None
    of.predict(left(100.0, job("1", 500.0, 3, runs=True)))
    blocked, free = of.predict_start(asked), of.predict_start(replace(asked, reqs=(1,)))
    assert blocked is not None
    assert free is not None
    assert blocked["expected"] == pytest.approx(600.0, abs=5.0)
    assert free["expected"] == pytest.approx(100.0, abs=2.0)


def test_the_answer_to_when_is_as_its_schema_says() -> None:
    of = outlook()
    of.predict(left(100.0, job("1", 500.0, 3, runs=True)))
    answer = when(of, USER, {"comment": "hops:reqs=1,4", "time_limit_seconds": 3600.0})
    assert is_valid(json.loads(json.dumps(answer)), "when")
    assert [way["reqs"] for way in answer["ways"]] == [[1, 4], [1], [4]]
    assert not is_valid(answer | {"ways": []}, "when")


def test_asking_changes_no_prediction() -> None:
    plain, asked = outlook(), outlook()
    for of in (plain, asked):
        of.predict(left(100.0, job("1", 500.0, 3, runs=True)))
    before = asked.state()
    asked.predict_start(JobRequest(USER, (4,)))
    assert asked.state() == before == plain.state()


def test_the_thread_predicts_the_newest_offer_and_ends() -> None:
    of = outlook()
    for now in (100.0, 200.0, 300.0):
        of.offer(left(now, job("1", 5000.0, 4, runs=True)))
    until = time.monotonic() + 30.0
    while (of.document or {"at": 0.0})["at"] < 300.0:
        assert time.monotonic() < until
        time.sleep(0.01)
    of.close()
    assert of._thread is not None
    assert not of._thread.is_alive()


def test_a_defect_of_one_set_does_not_end_the_thread() -> None:
    of = outlook()
    good = left(100.0, job("1", 5000.0, 4, runs=True))
    of.offer(replace(good, snapshot=None))  # type: ignore[arg-type]
    until = time.monotonic() + 30.0
    while of.document is None:
        of.offer(good)
        assert time.monotonic() < until
        time.sleep(0.01)
    of.close()


def test_calibration_survives_a_restart() -> None:
    of = outlook()
    now = 0.0
    for number in range(30):
        each = job(str(number), 100.0, 4, runs=True, at=now)
        of.predict(left(now, each))
        of.predict(left(now + 200.0, gone=(record(each, now + 200.0, end=now + 150.0),)))
        now += 300.0
    state = json.loads(json.dumps(of.state()))
    again = outlook()
    again.restore(state)
    again.restore(state)
    assert again.state() == state
    again.predict(left(now, job("new", 100.0, 4, runs=True)))
    row = again.row(JobId("new"))
    assert row is not None
    assert row["high"] - now > 120.0  # its 100 s have become 150 s so far


def test_what_is_there_at_first_is_no_arrival_and_what_comes_later_is() -> None:
    of = outlook()
    of.predict(left(100.0, job("1", 9000.0, 2, runs=True)))
    assert of.state()["arrivals"]["counts"] == [0.0] * 24
    of.predict(left(400.0, job("1", 9000.0, 2, runs=True), job("2", 50.0, 4)))
    assert sum(of.state()["arrivals"]["counts"]) == 1.0


def test_a_job_that_is_not_submitted_yet_keeps_its_users_limits() -> None:
    """One job of the account at a time: it would start when the running one ends."""
    of = outlook()
    report = left(100.0, job("1", 500.0, 1, runs=True))
    limit = Limit("acc", frozenset({JobId("1")}), count=1)
    of.predict(replace(report, snapshot=replace(report.snapshot, limits=(limit,))))
    row = of.predict_start(JobRequest(USER, (1,), samples=40.0, workload=NET))
    assert row is not None
    assert row["expected"] == pytest.approx(600.0, abs=60.0)
    other = of.predict_start(JobRequest(UserName("bob"), (1,)))
    assert other is not None
    assert other["expected"] == pytest.approx(100.0, abs=2.0)

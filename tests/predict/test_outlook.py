"""Predictions of a live cluster: learnt from rounds, shown with their age, kept over a restart."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from hopsd.core.interactive.sessions import session_limits
from hopsd.core.interactive.settings import SessionSettings
from hopsd.core.queue.run_time import Expectation
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
from hopsd.store.postgres import PostgresStore

T, N0 = GpuType("t"), NodeName("n0")
USER, NET = UserName("ann"), WorkloadName("net")
SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schema"
TABLE = {T: ThroughputTable({1: 1.0}, {2: 1.0})}


def job(name: str, seconds: float, gpus: int, *, runs: bool = False, submit: float = 0.0) -> Job:
    return Job(
        JobId(name), USER, submit, 0.0, (gpus,), TABLE, samples=seconds * gpus,
        running=Allocation(((N0, gpus),)) if runs else Allocation(),
    )  # fmt: skip


def record(source: Job, now: float, *, end: float | None = None) -> JobRecord:
    state = SlurmState.COMPLETED if end is not None else SlurmState.RUNNING
    return JobRecord(
        source.id, USER, "train", "hops:reqs=1", NET, source.submit, now, state,
        allocation=source.running, allocation_since=now if source.running else None, end=end,
    )  # fmt: skip


def round_report(now: float, *jobs: Job, ended_records: tuple[JobRecord, ...] = ()) -> RoundReport:
    gpus_in_use = sum(item.running.gpus for item in jobs)
    snapshot = Snapshot(
        now, RoundInfo(first=False, seconds=60.0), (Node(N0, T, 4, 4 - gpus_in_use),), jobs
    )
    records = {item.id: record(item, now) for item in jobs} | {
        item.id: item for item in ended_records
    }
    return RoundReport(snapshot, (), {}, records, now + 60.0, 360.0)


def outlook() -> Outlook:
    return Outlook("slurm", PriorityName.LATENCY_RATIO)


def is_valid(document: Any, schema: str) -> bool:
    return Draft202012Validator(
        json.loads((SCHEMAS / f"{schema}.schema.json").read_text())
    ).is_valid(document)


def test_running_jobs_have_ends_and_waiting_jobs_starts() -> None:
    predictions = outlook()
    assert predictions.document is None
    assert predictions.row(JobId("1")) is None
    predictions.predict(round_report(100.0, job("1", 500.0, 4, runs=True), job("2", 50.0, 4)))
    end, start = predictions.row(JobId("1")), predictions.row(JobId("2"))
    assert end is not None
    assert start is not None
    assert (end["kind"], start["kind"]) == ("end", "start")
    assert end["expected"] == pytest.approx(600.0, abs=2.0)
    assert start["expected"] == pytest.approx(600.0, abs=5.0)
    assert end["progress"] == 0.0
    document = predictions.document
    assert document is not None
    assert document["at"] == 100.0
    for instance in (end, start, document, None):
        assert is_valid(json.loads(json.dumps(instance)), "predictions")
    assert not is_valid(end | {"expected": "soon"}, "predictions")


def test_a_session_waits_for_the_part_of_other_sessions() -> None:
    """Regression: it was said to start at once, since GPUs are idle, also if it never may."""
    runs, waits, huge = (
        job("1", 500.0, 1, runs=True),
        job("2", 50.0, 1, submit=1.0),
        job("3", 50.0, 2, submit=2.0),
    )
    report = round_report(100.0, runs, waits, huge)
    settings = SessionSettings(share=0.25)  # one GPU of four
    limits = session_limits(report.snapshot, {runs.id, waits.id, huge.id}, settings)
    predictions = outlook()
    predictions.predict(replace(report, session_limits=limits))
    start = predictions.row(waits.id)
    assert start is not None
    assert start["expected"] == pytest.approx(600.0, abs=5.0)
    assert predictions.row(huge.id) is None


def test_errors_are_counted_when_predictions_come_true() -> None:
    predictions = outlook()
    first, second = job("1", 500.0, 4, runs=True), job("2", 50.0, 4)
    predictions.predict(round_report(100.0, first, second))
    predictions.predict(
        round_report(650.0, replace(second, running=Allocation(((N0, 4),))),
             ended_records=(record(first, 650.0, end=640.0),))
    )  # fmt: skip
    document = predictions.document
    assert document is not None
    ends, starts = document["errors"]["end"], document["errors"]["start"]
    assert sum(ends["counts"]) == sum(starts["counts"]) == 1
    assert ends["seconds"] == pytest.approx(40.0, abs=3.0)
    assert starts["seconds"] == pytest.approx(50.0, abs=6.0)


def test_a_job_that_ran_between_two_sets_counts_as_started() -> None:
    predictions = outlook()
    short = job("1", 20.0, 4)
    predictions.predict(round_report(100.0, job("2", 500.0, 4, runs=True), short))
    ended_record = replace(record(short, 700.0, end=690.0), run_seconds=25.0)
    predictions.predict(round_report(700.0, ended_records=(ended_record,)))
    document = predictions.document
    assert document is not None
    starts = document["errors"]["start"]
    assert sum(starts["counts"]) == 1
    assert starts["seconds"] == pytest.approx(65.0, abs=6.0)  # 665 s, in place of 600 s


def test_a_cancelled_job_is_not_an_outcome() -> None:
    predictions = outlook()
    predictions.predict(round_report(100.0, job("1", 500.0, 4, runs=True)))
    predictions.predict(round_report(200.0))
    document = predictions.document
    assert document is not None
    assert sum(document["errors"]["end"]["counts"]) == 0
    assert predictions.row(JobId("1")) is None


def test_the_effect_of_a_round_counts() -> None:
    waits, runs = job("1", 10.0, 2), job("2", 10.0, 4, runs=True)
    old_snapshot = round_report(0.0, waits, runs).snapshot
    outcomes = [
        StepOutcome(Step(runs.id, StepKind.PREEMPT, current=runs.running), OutcomeStatus.DONE),
        StepOutcome(
            Step(waits.id, StepKind.START, target=Allocation(((N0, 2),))),
            OutcomeStatus.DONE,
            Allocation(((N0, 2),)),
        ),
    ]
    snapshot = apply_outcomes(old_snapshot, outcomes)
    assert [job_after.running.gpus for job_after in snapshot.jobs] == [2, 0]
    assert snapshot.nodes[0].idle == 2
    failures = [replace(outcome, status=OutcomeStatus.FAILED) for outcome in outcomes]
    assert apply_outcomes(old_snapshot, failures) == old_snapshot


def test_when_predicts_the_start_of_a_new_job() -> None:
    predictions = outlook()
    request = JobRequest(USER, (4,), samples=40.0, workload=NET)
    assert predictions.predict_start(request) is None
    predictions.predict(round_report(100.0, job("1", 500.0, 3, runs=True)))
    blocked_start, free = (
        predictions.predict_start(request),
        predictions.predict_start(replace(request, reqs=(1,))),
    )
    assert blocked_start is not None
    assert free is not None
    assert blocked_start["expected"] == pytest.approx(600.0, abs=5.0)
    assert free["expected"] == pytest.approx(100.0, abs=2.0)


def test_the_answer_to_when_conforms_to_its_schema() -> None:
    predictions = outlook()
    predictions.predict(round_report(100.0, job("1", 500.0, 3, runs=True)))
    answer = when(predictions, USER, {"comment": "hops:reqs=1,4", "time_limit_seconds": 3600.0})
    assert is_valid(json.loads(json.dumps(answer)), "when")
    assert [way["reqs"] for way in answer["ways"]] == [[1, 4], [1], [4]]
    assert not is_valid(answer | {"ways": []}, "when")


@pytest.mark.parametrize("shape", ["shape=node", "per_node=4"])
def test_when_keeps_the_shape_that_the_comment_gives(shape: str) -> None:
    """Two nodes have two GPUs each: four on one of them were to start at once."""
    predictions = outlook()
    report = round_report(100.0)
    nodes = tuple(Node(NodeName(name), T, 2, 2) for name in ("n0", "n1"))
    predictions.predict(replace(report, snapshot=replace(report.snapshot, nodes=nodes)))
    for comment, known in (("hops:reqs=4", True), (f"hops:reqs=4;{shape}", False)):
        (way,) = when(predictions, USER, {"comment": comment})["ways"]
        assert (way["predicted"] is not None) is known


def test_no_prediction_is_more_exact_than_hopsds_observations() -> None:
    """Progress is as old as the last report and reading: in the demo, two of three ends predicted
    "in 20 s, give or take 1 s" were wrong."""
    predictions = outlook()
    running = round_report(100.0, job("1", 20.0, 4, runs=True), job("2", 50.0, 4))
    predictions.predict(replace(running, refresh_seconds=3.0))
    for name in ("1", "2"):
        row = predictions.row(JobId(name))
        assert row is not None
        assert row["low"] <= row["expected"] - 8.0
        assert row["high"] >= row["expected"] + 8.0


def test_asking_changes_no_prediction() -> None:
    plain, with_queries = outlook(), outlook()
    for predictions in (plain, with_queries):
        predictions.predict(round_report(100.0, job("1", 500.0, 3, runs=True)))
    old_state = with_queries.state()
    with_queries.predict_start(JobRequest(USER, (4,)))
    assert with_queries.state() == old_state == plain.state()


def test_the_thread_predicts_the_newest_offer_and_ends() -> None:
    predictions = outlook()
    for now in (100.0, 200.0, 300.0):
        predictions.offer(round_report(now, job("1", 5000.0, 4, runs=True)))
    deadline = time.monotonic() + 30.0
    while (predictions.document or {"at": 0.0})["at"] < 300.0:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    predictions.close()
    assert predictions._thread is not None
    assert not predictions._thread.is_alive()


def test_a_defect_in_one_set_does_not_end_the_thread() -> None:
    predictions = outlook()
    good = round_report(100.0, job("1", 5000.0, 4, runs=True))
    predictions.offer(replace(good, snapshot=None))  # type: ignore[arg-type]
    deadline = time.monotonic() + 30.0
    while predictions.document is None:
        predictions.offer(good)
        assert time.monotonic() < deadline
        time.sleep(0.01)
    predictions.close()


def test_calibration_survives_a_restart() -> None:
    predictions = outlook()
    now = 0.0
    for number in range(30):
        short_job = job(str(number), 100.0, 4, runs=True, submit=now)
        predictions.predict(round_report(now, short_job))
        predictions.predict(
            round_report(
                now + 200.0, ended_records=(record(short_job, now + 200.0, end=now + 150.0),)
            )
        )
        now += 300.0
    state = json.loads(json.dumps(predictions.state()))
    second_outlook = outlook()
    second_outlook.restore(state)
    second_outlook.restore(state)
    assert second_outlook.state() == state
    second_outlook.predict(round_report(now, job("new", 100.0, 4, runs=True)))
    row = second_outlook.row(JobId("new"))
    assert row is not None
    assert row["high"] - now > 120.0  # its 100 s have become 150 s so far


def restarted(predictions: Outlook, dsn: str) -> Outlook:
    """An outlook that knows only what the database kept of another one."""
    with PostgresStore(dsn) as store:
        store.save_predictions(predictions.state())
    second_outlook = outlook()
    with PostgresStore(dsn) as store:
        second_outlook.restore(store.predictions())
    return second_outlook


def train_in_turn(predictions: Outlook, source: Job, expectation: Expectation | None) -> None:
    """Let 40 jobs like ``source`` run in turn, for 900 to 1,100 s."""
    for number in range(40):
        now, seconds = 2000.0 * number, 900.0 + 200.0 * (number * 7 % 40) / 39
        ran = replace(source, id=JobId(f"old{number}"), submit=now)
        expectations = {} if expectation is None else {ran.id: expectation}
        predictions.predict(replace(round_report(now, ran), expected=expectations))
        ended_record = record(ran, now + seconds, end=now + seconds)
        predictions.predict(round_report(now + 1500.0, ended_records=(ended_record,)))


def end_of(
    predictions: Outlook, running: Job, expectation: Expectation | None
) -> tuple[float, float]:
    """Return the seconds until the job's expected end, and the length of the interval."""
    expectations = {} if expectation is None else {running.id: expectation}
    predictions.predict(replace(round_report(1e5, running), expected=expectations))
    row = predictions.row(running.id)
    assert row is not None
    return row["expected"] - 1e5, row["high"] - row["low"]


@pytest.mark.live
def test_the_share_of_limits_that_jobs_use_survives_a_restart(database: str) -> None:
    """Forty jobs use a tenth of their limits. Regression: after a restart, the next job was
    predicted from the share that jobs use elsewhere.
    """
    learnt = outlook()
    limited = replace(job("new", 0.0, 4, runs=True), samples=None, time_limit_seconds=10_000.0)
    train_in_turn(learnt, limited, None)
    seconds, _ = end_of(restarted(learnt, database), limited, None)
    assert seconds == pytest.approx(1000.0, rel=0.1)


@pytest.mark.live
def test_the_errors_of_past_runs_survive_a_restart(database: str) -> None:
    """Past runs give 400 to 2,500 s, but forty jobs took about 1,000 s. Regression: after a
    restart, intervals were as wide as for past runs alone.
    """
    learnt = outlook()
    plain = replace(job("new", 0.0, 4, runs=True), samples=None)
    expectation = Expectation(1000.0, None, 0.4, 2.5, "past runs")
    train_in_turn(learnt, plain, expectation)
    _, width = end_of(restarted(learnt, database), plain, expectation)
    assert width == pytest.approx(200.0, rel=0.5)


def test_another_policy_continues_with_what_does_not_depend_on_it() -> None:
    """Regression: a new policy started empty, which then replaced the saved state. After a restart
    it was corrected for the errors of the old policy's playouts.
    """
    learnt = outlook()
    learnt.restore(None)
    limited = replace(job("new", 0.0, 4, runs=True), samples=None, time_limit_seconds=10_000.0)
    train_in_turn(learnt, limited, None)
    relative, other = (
        learnt.successor(policy, PriorityName.LATENCY_RATIO) for policy in ("fifo", "hops+")
    )
    assert relative.state() == learnt.state()
    assert end_of(other, limited, None)[0] < 2000.0
    assert not other.state()["outcomes"]
    assert sum(other.state()["arrivals"]["counts"]) == 39.0


def test_an_outlook_without_a_state_lets_its_successor_read_it() -> None:
    """This happens on a standby that reads its configuration again."""
    state = outlook().state() | {"past_run_errors": [0.5] * 9}
    other = outlook().successor("slurm-multifactor", PriorityName.LATENCY_RATIO)
    other.restore(state)
    assert other.state() == state


def test_initial_jobs_are_not_arrivals_but_later_ones_are() -> None:
    predictions = outlook()
    predictions.predict(round_report(100.0, job("1", 9000.0, 2, runs=True)))
    assert predictions.state()["arrivals"]["counts"] == [0.0] * 24
    predictions.predict(round_report(400.0, job("1", 9000.0, 2, runs=True), job("2", 50.0, 4)))
    assert sum(predictions.state()["arrivals"]["counts"]) == 1.0


def test_an_unsubmitted_job_obeys_its_users_limits() -> None:
    """The account runs one job at a time, so the job would start when the running one ends."""
    predictions = outlook()
    report = round_report(100.0, job("1", 500.0, 1, runs=True))
    limit = Limit("acc", frozenset({JobId("1")}), count=1)
    predictions.predict(replace(report, snapshot=replace(report.snapshot, limits=(limit,))))
    row = predictions.predict_start(JobRequest(USER, (1,), samples=40.0, workload=NET))
    assert row is not None
    assert row["expected"] == pytest.approx(600.0, abs=60.0)
    start_of_other = predictions.predict_start(JobRequest(UserName("bob"), (1,)))
    assert start_of_other is not None
    assert start_of_other["expected"] == pytest.approx(100.0, abs=2.0)

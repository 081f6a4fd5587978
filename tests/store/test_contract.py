"""Behaviour that both stores must share."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from values import (
    ended_job,
    job,
    job_records,
    outcomes,
    plan_record,
    plan_records,
    running,
    waiting,
)

from hopsd.errors import ConfigError, StoreError
from hopsd.model.allocation import Allocation
from hopsd.model.history import JobRecord, ProfileRun
from hopsd.model.ids import GpuType, JobId, NodeName, UserName, WorkloadName
from hopsd.model.knowledge import Bandwidth, PhaseRecord, Phases, Shortage, Theory, ThroughputRecord
from hopsd.model.plan import Plan
from hopsd.model.reading import SlurmState
from hopsd.model.reason import ReasonCode
from hopsd.model.step import OutcomeStatus, Step, StepKind, StepOutcome
from hopsd.store import throughput
from hopsd.store.history import History
from hopsd.store.past_runs import MAX_OF_ACCOUNT, MAX_SIMILAR
from hopsd.store.port import PlanId, PlanRecord
from hopsd.store.postgres import PostgresStore
from hopsd.store.throughput import NEWEST, NEWEST_PHASES

FIRST, TWO = JobId("1"), JobId("2")
N0, N1 = {"n0": 2}, {"n1": 4}
any_example = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@any_example
@given(record=job_records)
def test_a_job_is_loaded_as_it_was_saved(store: History, record: JobRecord) -> None:
    store.save_jobs([record])
    assert store.jobs()[record.id] == record


def test_an_infinite_time_is_stored(store: History) -> None:
    store.save_jobs([running(FIRST, N0, since=5.0)])
    store.save_jobs([job(FIRST, seen=inf)])
    (placement,) = store.placements(FIRST)
    assert (placement.start, placement.end) == (5.0, inf)


@pytest.mark.slow
@any_example
@given(record=plan_records, results=st.lists(outcomes, max_size=3).map(tuple))
def test_a_plan_is_loaded_as_it_was_begun(
    store: History, record: PlanRecord, results: tuple[StepOutcome, ...]
) -> None:
    plan = store.begin_plan(record)
    assert store.unfinished_plan() == (plan, record)
    store.finish_plan(plan, results, finished=1.0)
    assert store.unfinished_plan() is None
    assert store.last_plan() == replace(record, outcomes=results)
    assert store.outcomes(plan) == results


def test_an_ended_job_is_no_longer_open(store: History) -> None:
    store.save_jobs([job("1"), job("2")])
    store.save_jobs([ended_job("1", 200.0)])
    assert set(store.jobs()) == {TWO}
    assert store.job(FIRST) == ended_job("1", 200.0)
    assert store.job(JobId("3")) is None
    assert store.newest_jobs([JobId("3"), FIRST]) == {FIRST: ended_job("1", 200.0)}


def test_saving_again_replaces_the_record(store: History) -> None:
    store.save_jobs([job(seen=110.0)])
    store.save_jobs([job(seen=140.0, wait_seconds=30.0)])
    assert store.jobs() == {FIRST: job(seen=140.0, wait_seconds=30.0)}
    store.save_jobs([])
    assert len(store.jobs()) == 1


def test_a_reused_id_is_another_job(store: History) -> None:
    store.save_jobs([running("1", N0, 120.0)])
    store.save_jobs([ended_job("1", 200.0)])
    second_job = running("1", N1, 5120.0, submit=5000.0)
    store.save_jobs([second_job])
    assert store.jobs() == {FIRST: second_job}
    assert store.job(FIRST) == second_job
    assert store.newest_jobs([FIRST]) == {FIRST: second_job}
    assert [p.submit for p in store.placements(FIRST)] == [100.0, 5000.0]


def test_a_forgotten_job_whose_id_was_reused_keeps_its_record(
    store: History,
) -> None:
    """Regression: the store deleted the job's open record."""
    old = {"wait_seconds": 20.0, "run_seconds": 10.0}
    store.save_jobs([running("1", N0, 120.0, seen=150.0, **old)])
    store.save_jobs([running("1", N1, 5120.0, submit=5000.0)])
    assert [(p.submit, p.start, p.end) for p in store.placements(FIRST)] == [
        (100.0, 120.0, 5000.0),
        (5000.0, 5120.0, None),
    ]
    store.save_jobs([ended_job("1", 5200.0, submit=5000.0, wait_seconds=40.0, run_seconds=10.0)])
    assert not store.jobs()
    assert store.raqlr(0.0) == pytest.approx((2.0 + 4.0) / 2)


def test_the_history_of_a_job_excludes_an_earlier_job_with_its_number(store: History) -> None:
    """The earlier job may have been another user's."""
    store.save_jobs([running("1", N0, 120.0)])
    store.save_jobs([ended_job("1", 200.0)])
    store.add_event("moved", "of the earlier one", job=FIRST, time=150.0)
    store.save_jobs([running("1", N1, 5120.0, submit=5000.0)])
    store.add_event("moved", "of this one", job=FIRST, time=5130.0)
    history = store.job_history(FIRST)
    assert [row["nodes"] for row in history["placements"]] == [N1]
    assert [row["text"] for row in history["events"]] == ["of this one"]


def test_placements_follow_a_job_from_start_over_move_to_end(store: History) -> None:
    store.save_jobs([job("1")])
    assert store.placements() == ()
    store.save_jobs([running("1", N0, 120.0)])
    store.save_jobs([running("1", N0, 120.0, seen=150.0)])
    store.save_jobs([running("1", N1, 180.0)])
    store.save_jobs([ended_job("1", 240.0)])
    assert [(p.start, p.end, p.allocation.as_dict()) for p in store.placements(FIRST)] == [
        (120.0, 180.0, N0),
        (180.0, 240.0, N1),
    ]


@pytest.mark.parametrize("vacate_time", [155.0, 155.58])
def test_an_outcome_ends_the_placement(store: History, vacate_time: float) -> None:
    store.save_jobs([running("1", N0, 120.0)])
    step = Step(FIRST, StepKind.MOVE, Allocation.of(N0), Allocation.of(N1))
    plan = store.begin_plan(plan_record(None, step, time=150.0))
    outcome = StepOutcome(step, OutcomeStatus.DONE, step.target, vacated=vacate_time)
    store.finish_plan(plan, [outcome], 160.0)
    store.save_jobs([running("1", N1, 158.0)])
    assert [(p.start, p.end) for p in store.placements()] == [(120.0, 155.0), (158.0, None)]


def test_a_preempted_jobs_placement_ends_by_the_next_reading(store: History) -> None:
    store.save_jobs([running("1", N0, 120.0)])
    store.save_jobs([job("1", seen=170.7)])
    assert [(p.start, p.end) for p in store.placements()] == [(120.0, 170.0)]


def test_a_requeued_jobs_placement_ends_at_the_requeue(store: History) -> None:
    store.save_jobs([running("1", N0, 120.0)])
    store.save_jobs([job("1", seen=170.7, allocation_since=150.0)])
    assert [(p.start, p.end) for p in store.placements()] == [(120.0, 150.0)]


def test_a_resized_allocation_stays_one_placement(store: History) -> None:
    store.save_jobs([running("1", {"n0": 2, "n1": 2}, 120.0)])
    store.save_jobs([running("1", {"n0": 2}, 120.0)])
    assert [p.allocation.as_dict() for p in store.placements()] == [{"n0": 2}]


def test_the_newest_unfinished_and_finished_plans_are_returned(store: History) -> None:
    assert store.unfinished_plan() is None
    assert store.last_plan() is None
    old, new = plan_record(time=100.0), plan_record(time=130.0)
    store.finish_plan(store.begin_plan(old), [], 101.0)
    plan = store.begin_plan(new)
    assert store.unfinished_plan() == (plan, new)
    assert store.last_plan() == old
    store.finish_plan(plan, [], 131.0)
    assert store.last_plan() == new


def test_the_newest_outcome_of_each_job_is_returned(store: History) -> None:
    def carried_out(*jobs: str, status: OutcomeStatus) -> tuple[StepOutcome, ...]:
        steps = tuple(Step(JobId(job), StepKind.MOVE) for job in jobs)
        outcomes = tuple(StepOutcome(step, status) for step in steps)
        plan_id = store.begin_plan(PlanRecord(1.0, 2.0, True, 1.0, Plan({}), steps))
        store.finish_plan(plan_id, outcomes, finished=2.0)
        return outcomes

    first_outcome, two = carried_out("1", "2", status=OutcomeStatus.FAILED)
    (newer,) = carried_out("2", status=OutcomeStatus.DONE)
    job_ids = [JobId(job) for job in ("1", "2", "3")]
    assert store.last_outcomes(job_ids) == {
        first_outcome.step.job: first_outcome,
        two.step.job: newer,
    }
    assert store.last_outcomes([]) == {}


def test_plans_are_summarised_newest_first(store: History) -> None:
    first = replace(
        waiting(j1=ReasonCode.HELD),
        placements={TWO: Allocation.of({"n0": 2})},
        objective=3.5,
        upper_bound=inf,
        seconds={"total": 0.25},
    )
    store.finish_plan(store.begin_plan(plan_record(first)), [], 101.0)
    store.begin_plan(plan_record(time=130.0))
    newest, older = store.plans(5)
    assert (newest.made, newest.first, newest.seconds) == (130.0, False, 0.0)
    assert (older.objective, older.upper_bound, older.seconds) == (3.5, inf, 0.25)
    assert (older.made, older.first, older.placed, older.waiting) == (100.0, True, 1, 1)
    assert store.plans(1) == (newest,)


def test_only_a_begun_plan_can_be_finished(store: History) -> None:
    with pytest.raises(StoreError, match="plan 17"):
        store.finish_plan(PlanId(17), [], 1.0)


def test_a_reason_lasts_until_it_is_replaced_or_removed(store: History) -> None:
    plans = [
        waiting(j1=ReasonCode.OUTSIDE_WINDOW, j2=ReasonCode.HELD),
        waiting(j1=ReasonCode.OUTSIDE_WINDOW, j2=ReasonCode.HELD),
        waiting(j1=ReasonCode.LOST_TO_OTHERS),
        waiting(j1=ReasonCode.LOST_TO_OTHERS, j2=ReasonCode.HELD),
    ]
    for time, plan in enumerate(plans, start=1):
        store.begin_plan(plan_record(plan, time=float(time)))
    reason_history = {
        name: [(r.reason.code, r.since, r.until) for r in store.reasons(name)]
        for name in (FIRST, TWO)
    }
    assert reason_history == {
        FIRST: [(ReasonCode.OUTSIDE_WINDOW, 1.0, 3.0), (ReasonCode.LOST_TO_OTHERS, 3.0, None)],
        TWO: [(ReasonCode.HELD, 1.0, 3.0), (ReasonCode.HELD, 4.0, None)],
    }


def test_raqlr_is_the_mean_over_recently_ended_jobs(store: History) -> None:
    assert store.raqlr(0.0) is None
    store.save_jobs(
        [
            ended_job("1", 199.0, wait_seconds=900.0, age_seconds=10.0),
            ended_job("2", 200.0, wait_seconds=10.0, age_seconds=10.0),
            ended_job("3", 300.0, wait_seconds=30.0, run_seconds=10.0),
            ended_job("4", 300.0, wait_seconds=30.0, run_seconds=0.0),
            running("5", N0, 120.0, wait_seconds=1000.0, age_seconds=1.0),
        ]
    )
    assert store.raqlr(200.0) == pytest.approx(2.0)


def test_knowledge_contains_past_runs_of_present_users_and_workloads(store: History) -> None:
    bert, bob, carol = WorkloadName("bert"), UserName("bob"), UserName("carol")
    store.save_jobs(
        [
            ended_job("1", 201.0, run_seconds=10.0, attained_gpu_seconds=40.0, samples_done=7.0),
            ended_job("2", 202.0, run_seconds=20.0, user=bob, account="lab"),
            ended_job(
                "3", 203.0, run_seconds=60.0, workload=bert, user=bob, state=SlurmState.FAILED
            ),
            ended_job("4", 204.0, run_seconds=99.0, state=SlurmState.NODE_FAIL),
            ended_job("5", 205.0, run_seconds=0.0, state=SlurmState.CANCELLED),
            running("6", N0, 120.0, run_seconds=999.0),
            running("7", N0, 120.0, user=carol, account="lab"),
        ]
    )
    runs = store.knowledge().runs
    assert [(run.user, run.account, run.seconds, run.end) for run in runs] == [
        ("alice", "", 10.0, 201.0),
        ("bob", "lab", 20.0, 202.0),
    ]
    assert (runs[0].name, runs[0].workload, runs[0].gpu_seconds, runs[0].samples) == (
        "train",
        "resnet50",
        40.0,
        7.0,
    )


def test_runs_ended_by_hops_own_signal_give_no_run_time_but_name_their_workload(
    store: History,
) -> None:
    first_job, two = ended_job("1", 200.0, run_seconds=9.0), ended_job("2", 200.0, run_seconds=9.0)
    store.save_jobs([replace(first_job, workload=WorkloadName("w1")), two, job("3")])
    store.save_ended_by_signal([FIRST])
    knowledge = store.knowledge()
    assert [run.workload for run in knowledge.runs] == [two.workload]
    assert knowledge.ended_by_signal == {(first_job.user, WorkloadName("w1"))}


def test_a_job_that_was_done_when_it_ended_in_the_grace_of_the_signal_is_like_any_other(
    store: History,
) -> None:
    """Otherwise each workload would sooner or later have such a job, and not be moved any more."""
    jobs = [
        replace(
            ended_job(job, 200.0, run_seconds=9.0),
            workload=WorkloadName(f"w{job}"),
            samples_done=samples_done,
            samples_planned=samples_planned,
        )
        for job, samples_done, samples_planned in (("1", 995.0, 1000.0), ("2", 900.0, 1000.0))
    ]
    store.save_jobs([*jobs, job("3")])
    store.save_ended_by_signal([record.id for record in jobs])
    knowledge = store.knowledge()
    assert [run.workload for run in knowledge.runs] == ["w1"]
    assert knowledge.ended_by_signal == {(jobs[1].user, WorkloadName("w2"))}


def test_workloads_that_failed_at_a_restart_are_known(store: History) -> None:
    first_job, two = ended_job("1", 200.0, run_seconds=9.0), ended_job("2", 200.0, run_seconds=9.0)
    store.save_jobs([replace(first_job, workload=WorkloadName("w1"), failed_again=True), two])
    assert store.knowledge().failed_again == {(first_job.user, WorkloadName("w1"))}


def test_knowledge_contains_the_newest_runs_of_each_kind(store: History) -> None:
    lab = {"account": "lab"}
    store.save_jobs(
        [
            *(ended_job(str(n), 200.0 + n, run_seconds=n, **lab) for n in range(1, 200)),
            *(ended_job(f"{n}", 100.0, run_seconds=n, name="other", workload=WorkloadName("bert"))
              for n in range(300, 340)),
            running("900", N0, 120.0, **lab),
            running("901", N0, 120.0, name="other", workload=WorkloadName("bert")),
        ]
    )  # fmt: skip
    runs = store.knowledge().runs
    assert [run.seconds for run in runs if run.account] == [*range(200 - MAX_OF_ACCOUNT, 200)]
    of_other = [run.seconds for run in runs if run.name == "other"]
    assert of_other == [*range(340 - MAX_SIMILAR, 340)]


def report(time: float, node: str = "n0") -> ThroughputRecord:
    workload, gpu_type = WorkloadName("resnet50"), GpuType("rtx3090")
    return ThroughputRecord(
        workload, gpu_type, NodeName(node), 2, 1, 98.5, time, batch=32.0, leaves=2
    )


def process(job: str, time: float, workload: str = "resnet50") -> PhaseRecord:
    phases = Phases(
        inference=False,
        on_device=True,
        pattern=1,
        batch_size=32,
        params=25.6e6,
        t_f=0.1,
        t_b=0.2,
        t_u=0.01,
        t_w=0.0,
        iterations=30,
        data_seconds=0.3,
        data_bins={90: 20, 101: 10},
        backward_by_data={90: 4.0, 101: 2.0},
    )
    gpu_type, node = GpuType("rtx3090"), NodeName("n0")
    name = WorkloadName(workload)
    return PhaseRecord(name, gpu_type, JobId(job), 0, node, 0, 77, 1, time, phases)


def shortage(
    user: str = "alice", workload: str = "resnet50", gpus: int = 1, time: float = 1.0
) -> Shortage:
    return Shortage(UserName(user), WorkloadName(workload), GpuType("v100"), gpus, time)


def fit(workload: str, time: float) -> Theory:
    return Theory(
        workload=WorkloadName(workload),
        gpu_type=GpuType("rtx3090"),
        inference=False,
        pattern=2,
        batch_size=32.0,
        params=25.6e6,
        t_f=0.1,
        t_b=0.2,
        t_u=0.01,
        p_cache=0.75,
        mu_cache=0.01,
        sigma_cache=0.001,
        mu_load=0.5,
        sigma_load=0.1,
        w_cache=0.0,
        w_load=0.02,
        records=4,
        iterations=120,
        at=time,
    )


def test_a_report_stored_twice_counts_once(store: History) -> None:
    store.add_throughput([report(1.0), report(2.0), report(2.0)])
    store.add_throughput([report(2.0)])
    assert store.knowledge().records == (report(1.0), report(2.0))


def test_knowledge_keeps_the_newest_reports_of_each_shape(store: History) -> None:
    store.add_throughput([report(float(time)) for time in range(NEWEST + 5)])
    store.add_throughput([report(0.5, "n1")])
    assert store.knowledge().records == (
        report(0.5, "n1"),
        *(report(float(time)) for time in range(5, NEWEST + 5)),
    )


def test_a_process_counts_by_its_last_report(store: History) -> None:
    store.add_phases([process("1", time=1.0), process("1", time=2.0), process("2", time=1.5)])
    store.add_phases([process("2", time=3.0), process("3", time=4.0, workload="bert")])
    phases = store.phases(WorkloadName("resnet50"), GpuType("rtx3090"))
    assert phases == (process("2", time=3.0), process("1", time=2.0))
    assert store.phases(WorkloadName("resnet50"), GpuType("v100")) == ()


def test_basic_times_use_the_newest_processes(store: History) -> None:
    store.add_phases(process(str(n), time=float(n)) for n in range(1, NEWEST_PHASES + 6))
    phases = store.phases(WorkloadName("resnet50"), GpuType("rtx3090"))
    assert [record.at for record in phases] == list(range(NEWEST_PHASES + 5, 5, -1))


def test_superseded_reports_are_pruned(store: History) -> None:
    store.add_throughput([report(float(time)) for time in range(1, NEWEST + 6)])
    store.add_throughput([report(1.0, "n1")])
    store.add_phases(process(str(n), time=float(n)) for n in range(1, NEWEST_PHASES + 4))
    before = store.knowledge().records
    deleted_counts = store.prune(now=100.0, retention_days=1.0)
    assert (deleted_counts["throughput"], deleted_counts["phases"]) == (5, 3)
    assert store.knowledge().records == before
    assert not any(store.prune(now=100.0, retention_days=1.0).values())


def test_shortages_of_thousands_of_ranks_take_one_statement() -> None:
    """Regression: each tick stored each shortage separately, which took 1 s for 4,096."""
    connection = Mock()
    ranks = [shortage(time=float(time)) for time in range(4096)]
    throughput.save_shortages(connection, [*ranks, shortage(gpus=3)])
    (call,) = connection.execute.call_args_list
    assert [(row["gpus"], row["at"]) for row in json.loads(call.args[1][0])] == [(3, 4095.0)]


def test_a_shortage_keeps_the_most_gpus_and_the_latest_time(store: History) -> None:
    store.save_shortages([shortage(gpus=2, time=3.0), shortage(gpus=4, time=1.0)])
    store.save_shortages([shortage(gpus=1, time=2.0), shortage("bob", time=5.0)])
    expected = shortage(gpus=4, time=3.0), shortage("bob", time=5.0)
    assert store.knowledge().shortages == expected


def test_the_last_fit_and_the_last_calibration_count(store: History) -> None:
    store.save_theory([fit("resnet50", time=1.0), fit("bert", time=1.0)])
    store.save_theory([fit("resnet50", time=2.0)])
    rtx3090, v100 = GpuType("rtx3090"), GpuType("v100")
    store.save_bandwidth([Bandwidth(v100, 2e9, 1e9, 5.0), Bandwidth(rtx3090, 2e9, 1e9, 5.0)])
    store.save_bandwidth([Bandwidth(v100, 3e9, 1e8, 6.0, 5e7)])
    knowledge = store.knowledge()
    assert knowledge.theory == (fit("bert", time=1.0), fit("resnet50", time=2.0))
    assert knowledge.bandwidth == (
        Bandwidth(rtx3090, 2e9, 1e9, 5.0),
        Bandwidth(v100, 3e9, 1e8, 6.0, 5e7),
    )


def profile(job: JobId, begin: float, **fields: Any) -> ProfileRun:
    return ProfileRun(
        job, 0, WorkloadName("bert"), GpuType("v100"), NodeName("n4"), begin, **fields
    )


def test_open_and_recent_profile_runs_are_returned(store: History) -> None:
    first, second = profile(FIRST, 100.0), profile(TWO, 90.0)
    store.save_profile_runs([first, second])
    assert store.profile_runs(since=500.0) == (second, first)
    failed_run = replace(first, run=1, end=130.0, closed=True, failure="exit code 1")
    store.save_profile_runs([failed_run])
    store.save_profile_runs([])
    assert store.profile_runs(since=100.0) == (second, failed_run)
    assert store.profile_runs(since=100.5) == (second,)


def test_the_last_program_of_a_script_is_returned(store: History) -> None:
    first_script, two, three = (WorkloadName(f"alice/train/{name}") for name in ("1", "2", "3"))
    store.save_program(first_script, "0123456789ab", time=1.0)
    store.save_program(two, "0123456789ab", time=1.0)
    store.save_program(first_script, "ba9876543210", time=2.0)
    assert store.programs([first_script, three]) == {first_script: "ba9876543210"}
    assert store.programs([]) == {}


def test_a_pause_persists(store: History) -> None:
    assert not store.control().paused
    store.set_paused(paused=True, operator="root", time=5.0)
    assert (store.control().paused, store.control().by, store.control().since) == (
        True,
        "root",
        5.0,
    )
    store.set_paused(paused=False, operator="alice", time=6.0)
    assert (store.control().paused, store.control().by) == (False, "alice")


def test_release_requests_persist_until_they_are_fulfilled(store: History) -> None:
    store.add_release_request([JobId("7"), JobId("8")], uid=1000, time=5.0)
    store.add_release_request([], uid=0, time=6.0)
    first, second = store.release_requests()
    assert (first.jobs, first.uid, first.at) == ((JobId("7"), JobId("8")), 1000, 5.0)
    assert second.jobs == ()
    store.end_release_requests([first])
    assert store.release_requests() == (second,)


def test_events_are_returned_newest_first(store: History) -> None:
    store.add_event("drift", "job 1 runs on n1", job=FIRST, time=1.0)
    store.add_event("recovered", "took up a plan", time=2.0)
    store.add_event("drift", "job 1 runs on n0", job=FIRST)
    assert [event.kind for event in store.events()] == ["drift", "recovered", "drift"]
    assert [event.text for event in store.events(FIRST)] == ["job 1 runs on n0", "job 1 runs on n1"]
    assert len(store.events(limit=1)) == 1


def test_a_jobs_history_is_valid_json(store: History) -> None:
    store.save_jobs([running("1", N0, 120.0)])
    store.begin_plan(plan_record(waiting(j1=ReasonCode.HELD)))
    store.add_event("drift", "seen", job=FIRST, time=2.0)
    history = store.job_history(FIRST)
    assert history["record"]["state"] == "RUNNING"
    assert history["placements"] == [{"start": 120.0, "end": None, "nodes": N0, "profiling": False}]
    assert history["reasons"] == [
        {"since": 100.0, "until": None, "code": "held", "reason": "because held"}
    ]
    assert history["events"] == [{"time": 2.0, "kind": "drift", "text": "seen"}]
    assert store.job_history(TWO)["record"] is None


def test_pruning_deletes_expired_rows_and_keeps_needed_ones(store: History) -> None:
    day = 86400.0
    store.save_jobs([running("1", N0, 120.0), running("2", N1, 120.0)])
    store.save_jobs([ended_job("2", 200.0)])
    for time in (1.0, 2.0):
        store.begin_plan(plan_record(waiting(j2=ReasonCode.HELD), time=time))
    store.begin_plan(plan_record(time=3.0))
    step = Step(FIRST, StepKind.HOLD)
    plan_ids = []
    for start in (200.0, 300.0):
        record = PlanRecord(start, start + 60.0, True, start, Plan({}), (step,))
        plan_ids.append(store.begin_plan(record))
        store.finish_plan(plan_ids[-1], [StepOutcome(step, OutcomeStatus.DONE)], start)
    store.add_throughput([report(1.0), report(9 * day)])
    store.add_phases([process("1", time=1.0), process("2", time=9 * day)])
    store.save_theory([fit("resnet50", time=1.0), fit("bert", time=9 * day)])
    store.save_shortages([shortage(time=1.0), shortage(workload="bert", time=9 * day)])
    store.save_profile_runs([profile(FIRST, 1.0, closed=True), profile(TWO, 2.0)])
    store.save_program(WorkloadName("old"), "0123456789ab", time=1.0)
    store.save_program(WorkloadName("new"), "0123456789ab", time=9 * day)
    store.add_event("drift", "old", time=1.0)
    store.add_event("drift", "new", time=9 * day)

    assert dict(store.prune(now=10 * day, retention_days=2.0)) == {
        "jobs": 1,
        "placements": 1,
        "rounds": 1,
        "reasons": 1,
        "throughput": 1,
        "phases": 1,
        "theory": 1,
        "shortages": 1,
        "profile_runs": 1,
        "programs": 1,
        "events": 1,
        "gpu_use": 0,
        "diary": 0,
    }
    assert set(store.jobs()) == {FIRST}
    assert [p.job for p in store.placements()] == ["1"]
    assert [len(store.outcomes(plan)) for plan in plan_ids] == [0, 1]
    assert store.unfinished_plan() is not None
    assert store.last_plan() is not None
    assert store.reasons(TWO) == ()
    assert store.knowledge().records == (report(9 * day),)
    assert [shortage.workload for shortage in store.knowledge().shortages] == ["bert"]
    assert [event.text for event in store.events()] == ["new"]
    assert [run.job for run in store.profile_runs(0.0)] == [TWO]
    assert store.programs([WorkloadName("old"), WorkloadName("new")]).keys() == {"new"}
    assert not any(store.prune(now=10 * day, retention_days=2.0).values())


@pytest.mark.slow
def test_a_database_belongs_to_one_cluster(database: str) -> None:
    """Otherwise one cluster's recovery sends signals to the other's jobs of the same numbers."""
    with PostgresStore(database) as store:
        for _ in range(2):
            store.claim_cluster("east")
        with pytest.raises(ConfigError, match="this database is cluster east's"):
            store.claim_cluster("west")


def test_the_state_of_predictions_is_replaced_as_a_whole(store: History) -> None:
    assert store.predictions() is None
    for state in ({"level": {"start": 0.8}, "residuals": {"start/1": [0.5, -1.0]}}, {"level": {}}):
        store.save_predictions(state)
        assert store.predictions() == state


def test_ended_jobs_are_sorted_by_end_for_one_user_or_all(store: History) -> None:
    bob = UserName("bob")
    store.save_jobs([ended_job("1", 300.0), ended_job("2", 500.0, user=bob), ended_job("3", 400.0)])
    store.save_jobs([job("4")])
    assert [record.id for record in store.ended_jobs(9)] == ["2", "3", "1"]
    assert [record.id for record in store.ended_jobs(2)] == ["2", "3"]
    assert [record.id for record in store.ended_jobs(9, bob)] == ["2"]
    assert store.ended_jobs(9, UserName("eve")) == ()


def test_queue_periods_count_waits_while_they_lasted(store: History) -> None:
    store.save_jobs(
        [
            ended_job("1", 150.0, wait_seconds=20.0),
            ended_job("2", 160.0, wait_seconds=40.0),
            job("3"),
        ]
    )
    store.save_jobs([ended_job("4", 900.0)])
    store.begin_plan(plan_record(waiting(j1=ReasonCode.HELD, j3=ReasonCode.HELD), time=100.0))
    store.begin_plan(plan_record(waiting(j3=ReasonCode.HELD), time=150.0))
    periods = store.queue_periods(100.0, 350.0, 100.0)
    assert [(period.start, period.waiting) for period in periods] == [
        (100.0, 1.5), (200.0, 1.0), (300.0, 1.0),
    ]  # fmt: skip
    assert [(period.ended, period.wait_seconds) for period in periods] == [
        (2, 30.0),
        (0, None),
        (0, None),
    ]
    assert store.queue_periods(0.0, 100.0, 50.0)[1].waiting == 0.0
    (period_of_user,) = store.queue_periods(100.0, 200.0, 100.0, UserName("bob"))
    assert (period_of_user.waiting, period_of_user.ended) == (0.0, 0)


def test_a_users_mail_setting_is_separate_and_can_be_deleted(store: History) -> None:
    ann, bob = UserName("ann"), UserName("bob")
    assert store.mail_kinds(ann) is None
    store.save_mail_kinds(ann, ["failed", "done"])
    store.save_mail_kinds(ann, ["stuck"])
    store.save_mail_kinds(bob, [])
    assert (store.mail_kinds(ann), store.mail_kinds(bob)) == (("stuck",), ())
    store.save_mail_kinds(ann, None)
    assert store.mail_kinds(ann) is None

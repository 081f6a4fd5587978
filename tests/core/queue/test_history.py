"""The waiting time that eq. 8 divides: eligible and not running, over all restarts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopsd.core.queue.history import advance_all, with_service
from hopsd.model.allocation import Allocation
from hopsd.model.history import JobRecord
from hopsd.model.ids import AppName, JobId, UserName
from hopsd.model.reading import Hold, JobReading, Reading, SlurmState

ON_N0 = Allocation.of({"n0": 2})
PENDING = JobReading(
    id=JobId("7"),
    user=UserName("ann"),
    uid=1000,
    name="train",
    comment="hops:reqs=1,2",
    partition="main",
    state=SlurmState.PENDING,
    submit=100.0,
    hold=Hold.HOPS,
)
RUNNING = replace(PENDING, state=SlurmState.RUNNING, hold=Hold.NONE, allocation=ON_N0)


def life(*readings: tuple[float, JobReading | None]) -> JobRecord:
    """The job's record after readings at the given times."""
    records: dict[JobId, JobRecord] = {}
    for now, job in readings:
        reading = Reading(now, (), (job,) if job else ())
        records = {**records, **advance_all(records, reading, {})}
    return records[JobId("7")]


def test_waiting_counts_from_submission_even_if_the_job_was_read_later() -> None:
    assert life((130.0, PENDING)).wait_seconds == 30.0


def test_the_wait_ends_at_slurms_start_time_not_at_the_first_reading() -> None:
    record = life((130.0, PENDING), (160.0, replace(RUNNING, start=142.0)))
    assert record.wait_seconds == 42.0
    assert record.run_seconds == 18.0
    assert record.attained_gpu_seconds == 36.0
    assert record.allocation_since == 142.0


def test_a_start_time_that_slurm_postpones_to_boot_nodes_is_not_a_second_run() -> None:
    """Seen on Slurm 22.05 with a SuspendProgram, from a job's release to 18 s later."""
    seen_running = [(160.0, replace(RUNNING, start=142.0)), (190.0, replace(RUNNING, start=185.0))]
    record = life((130.0, PENDING), *seen_running)
    assert (record.allocation_since, record.run_seconds) == (142.0, 48.0)
    restarted_job = replace(RUNNING, start=195.0, restarts=1)
    assert life((130.0, PENDING), *seen_running, (200.0, restarted_job)).allocation_since == 195.0


def test_a_requeue_resets_slurms_submit_time_but_not_ours() -> None:
    requeued_job = replace(PENDING, submit=170.0, restarts=1)
    record = life((130.0, PENDING), (160.0, replace(RUNNING, start=140.0)), (180.0, requeued_job))
    assert record.submit == 100.0
    assert record.restarts == 1
    with_waits = life(
        (130.0, PENDING),
        (160.0, replace(RUNNING, start=140.0)),
        (180.0, requeued_job),
        (200.0, requeued_job),
    )
    assert with_waits.wait_seconds == record.wait_seconds + 20.0


def test_a_requeued_job_releases_its_nodes_at_the_requeue_time() -> None:
    requeued_job = replace(PENDING, submit=170.0, restarts=1)
    running = (160.0, replace(RUNNING, start=140.0))
    assert life((130.0, PENDING), running, (180.0, requeued_job)).allocation_since == 170.0
    unmoved_record = life((130.0, PENDING), running, (180.0, replace(requeued_job, submit=100.0)))
    assert unmoved_record.allocation_since == 180.0
    second_run = replace(RUNNING, start=171.0, submit=170.0, restarts=1)
    assert life(running, (180.0, requeued_job), (190.0, second_run)).allocation_since == 171.0


@pytest.mark.parametrize(
    "kept_back",
    [
        replace(PENDING, hold=Hold.USER),
        replace(PENDING, dependency=True),
        replace(PENDING, begin=10_000.0),
    ],
    ids=["held by its user", "dependency", "begin time"],
)
def test_time_that_the_user_chose_to_wait_does_not_count(kept_back: JobReading) -> None:
    assert life((100.0, PENDING), (130.0, kept_back), (190.0, kept_back)).wait_seconds == 0.0
    assert life((130.0, kept_back), (190.0, replace(PENDING, submit=100.0))).wait_seconds <= 90.0


@pytest.mark.parametrize(
    ("state", "restarts", "seconds", "failed_again"),
    [
        (SlurmState.FAILED, 1, 4.0, True),  # a folder of the first start was already there
        (SlurmState.COMPLETED, 1, 4.0, False),
        (SlurmState.FAILED, 0, 4.0, False),
        (SlurmState.FAILED, 1, 70.0, False),
        (SlurmState.FAILED, 1, 50.0, False),  # the first run was no longer than that
    ],
)
def test_a_job_that_fails_soon_after_its_restart_is_recorded(
    state: SlurmState, restarts: int, seconds: float, failed_again: bool
) -> None:
    requeued_job = replace(PENDING, submit=170.0, restarts=1)
    ended_job = replace(
        PENDING, state=state, restarts=restarts, start=200.0, end=200.0 + seconds, ran_on=ON_N0
    )
    record = life(
        (130.0, PENDING),
        (160.0, replace(RUNNING, start=140.0)),
        (180.0, requeued_job),
        (300.0, ended_job),
    )
    assert record.failed_again == failed_again


def test_the_end_is_slurms_end_time_and_the_figures_stop_there() -> None:
    ended_job = replace(RUNNING, state=SlurmState.COMPLETED, start=110.0, end=150.0)
    record = life((105.0, PENDING), (120.0, replace(RUNNING, start=110.0)), (200.0, ended_job))
    assert record.end == 150.0
    assert record.run_seconds == 40.0
    assert record.wait_seconds == 10.0
    assert not record.allocation


def test_a_job_that_ran_and_ended_between_two_readings_is_counted() -> None:
    ended_job = replace(RUNNING, state=SlurmState.COMPLETED, start=110.0, end=150.0)
    record = life((105.0, PENDING), (200.0, ended_job))
    assert (record.wait_seconds, record.run_seconds) == (10.0, 40.0)
    assert record.attained_gpu_seconds == 80.0


def test_a_job_that_slurm_forgot_ends_when_it_was_last_seen() -> None:
    record = life((105.0, PENDING), (120.0, replace(RUNNING, start=110.0)), (9000.0, None))
    assert record.end == 120.0
    assert not record.allocation


def test_a_cancelled_pending_job_waits_until_its_end() -> None:
    cancelled_job = replace(PENDING, state=SlurmState.CANCELLED, end=140.0)
    assert life((110.0, PENDING), (200.0, cancelled_job)).wait_seconds == 40.0


@given(st.lists(st.tuples(st.sampled_from(["wait", "run"]), st.floats(1.0, 1e4)), min_size=1))
def test_wait_and_run_time_add_up_to_the_time_since_submission(
    phases: list[tuple[str, float]],
) -> None:
    now, readings, restarts = 100.0, [(100.0, PENDING)], 0
    for kind, seconds in phases:
        if kind == "run":
            job = replace(RUNNING, start=now, restarts=restarts)
            restarts += 1
        else:
            job = replace(PENDING, restarts=restarts)
        readings += [(now, job), (now + seconds, job)]
        now += seconds
    record = life(*readings)
    assert record.wait_seconds + record.run_seconds == pytest.approx(now - 100.0)
    assert record.attained_gpu_seconds == pytest.approx(2 * record.run_seconds)


def test_a_begin_time_set_after_a_restart_counts_as_well() -> None:
    requeued_job = replace(PENDING, submit=170.0, restarts=1, begin=10_000.0)
    before = life((130.0, PENDING), (160.0, replace(RUNNING, start=140.0)), (180.0, requeued_job))
    assert (
        life(
            (130.0, PENDING),
            (160.0, replace(RUNNING, start=140.0)),
            (180.0, requeued_job),
            (900.0, requeued_job),
        ).wait_seconds
        == before.wait_seconds
    )


@pytest.mark.parametrize(
    "successor",
    [replace(PENDING, submit=500.0), replace(PENDING, submit=500.0, user=UserName("bob"))],
)
def test_a_job_that_reuses_a_forgotten_id_starts_a_new_record(successor: JobReading) -> None:
    reading = Reading(300.0, (), (replace(PENDING, submit=170.0, restarts=2),))
    old = advance_all({}, reading, {})
    given_back = {job: replace(record, released=True) for job, record in old.items()}
    record = advance_all(given_back, Reading(520.0, (), (successor,)), {})[JobId("7")]
    assert (record.submit, record.wait_seconds, record.restarts) == (500.0, 20.0, 0)
    assert not record.released


def test_a_forgotten_jobs_record_is_closed_when_its_successor_ended_unseen() -> None:
    old = advance_all({}, Reading(300.0, (), (PENDING,)), {})
    successor = replace(PENDING, state=SlurmState.COMPLETED, submit=400.0, end=450.0)
    record = advance_all(old, Reading(520.0, (), (successor,)), {})[JobId("7")]
    assert (record.submit, record.end) == (100.0, 300.0)


def test_a_clock_set_back_subtracts_nothing() -> None:
    before = life((130.0, PENDING), (160.0, PENDING))
    after = life((130.0, PENDING), (160.0, PENDING), (20.0, PENDING), (170.0, PENDING))
    assert after.wait_seconds == before.wait_seconds + 10.0


def test_the_gpu_time_of_an_ended_job_counts_for_its_app_once() -> None:
    """Themis' finish-time fairness needs the GPU time that an app's jobs have had."""

    def record(number: int, gpu_seconds: float, end: float | None = None) -> JobRecord:
        return replace(
            life((130.0, PENDING)),
            id=JobId(str(number)), attained_gpu_seconds=gpu_seconds, end=end,
        )  # fmt: skip

    apps = dict.fromkeys((JobId("1"), JobId("2"), JobId("3")), (UserName("ann"), AppName("search")))

    def app_of(record: JobRecord) -> tuple[UserName, AppName] | JobId:
        return apps.get(record.id, record.id)

    running = {JobId(str(n)): record(n, 10.0) for n in (1, 2, 3, 4)}
    ended_records = {
        **running,
        JobId("1"): record(1, 70.0, 200.0),
        JobId("2"): record(2, 30.0, 200.0),
    }
    with_ended = with_service(running, ended_records, app_of)
    assert {job: with_ended[job].app_gpu_seconds for job in with_ended} == {
        "1": 0.0, "2": 0.0, "3": 100.0, "4": 0.0
    }  # fmt: skip
    assert with_service(with_ended, with_ended, app_of) == with_ended

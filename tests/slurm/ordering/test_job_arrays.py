"""Which tasks of an array are jobs to plan for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopsd.core.queue.history import advance_all, eligible
from hopsd.model.ids import JobId, Tasks, UserName, job_order
from hopsd.model.reading import Hold, JobReading, Reading, SlurmState
from hopsd.slurm.ordering.job_arrays import as_task, in_turn
from hopsd.slurm.parse import job_reading, known_jobs, task_reading

ARRAY = JobId("17")


def record(tasks: str, limit: int = 0, **fields: Any) -> JobReading:
    """Slurm's one record of all tasks that it has not split off yet."""
    job = JobReading(
        ARRAY, UserName("u"), 1, "j", "hops:reqs=1", "main", SlurmState.PENDING, 100.0, Hold.HOPS,
        rest=Tasks.parse(tasks), task_limit=limit,
    )  # fmt: skip
    return replace(job, **fields)


def task(number: int, state: SlurmState = SlurmState.PENDING, **fields: Any) -> JobReading:
    fields = {"number": str(100 + number), "state": state, **fields}
    return replace(as_task(record("0"), number), **fields)


def ids(jobs: list[JobReading]) -> list[str]:
    return sorted((job.id for job in jobs if not job.is_throttled or job.rest), key=job_order)


def tasks_in_turn_of(*jobs: JobReading, room: int = 4) -> list[JobReading]:
    return in_turn(jobs, lambda _: room, as_task)


@pytest.mark.parametrize(
    ("text", "numbers", "text_of_tasks"),
    [
        ("0-3", [0, 1, 2, 3], "0-3"),
        ("5", [5], "5"),
        ("[1,3-5%2]", [1, 3, 4, 5], "1,3-5"),
        ("0-10:5", [0, 5, 10], "0-10:5"),
        ("0,2,4,44...%8", [0, 2, 4], "0,2,4"),
        ("", [], ""),
        ("?", [], ""),
    ],
)
def test_task_numbers_are_parsed(text: str, numbers: list[int], text_of_tasks: str) -> None:
    tasks = Tasks.parse(text)
    assert (list(tasks), len(tasks), str(tasks)) == (numbers, len(numbers), text_of_tasks)


@given(st.sets(st.integers(0, 300)), st.integers(0, 50))
def test_task_numbers_survive_a_round_trip(numbers: set[int], count: int) -> None:
    tasks = Tasks.from_numbers(numbers)
    assert list(Tasks.parse(str(tasks))) == list(tasks) == sorted(numbers)
    assert tasks.first(count) + list(tasks.without_first(count)) == sorted(numbers)
    assert all((number in tasks) == (number in numbers) for number in range(301))


@pytest.mark.parametrize(
    ("limit", "room", "expected_tasks"),
    [(0, 3, ["17_0", "17_1", "17_2", "17"]), (2, 3, ["17_0", "17_1", "17"]), (9, 3, 4), (0, 9, 6)],
)
def test_as_many_tasks_as_could_run_are_split_off(
    limit: int, room: int, expected_tasks: object
) -> None:
    job_ids = ids(tasks_in_turn_of(record("0-5", limit), room=room))
    assert (len(job_ids) if isinstance(expected_tasks, int) else job_ids) == expected_tasks


def test_running_and_separate_tasks_use_up_the_limit() -> None:
    jobs = [record("5-9", 4), task(0, SlurmState.RUNNING), task(1), task(2, SlurmState.COMPLETED)]
    jobs = [replace(job, task_limit=4) for job in jobs]
    assert ids(tasks_in_turn_of(*jobs)) == ["17_0", "17_1", "17_2", "17_5", "17_6", "17"]


def test_held_tasks_do_not_block_others() -> None:
    jobs = [record("5-9"), task(0, hold=Hold.USER), task(1, dependency=True)]
    assert ids(tasks_in_turn_of(*jobs, room=2)) == ["17_0", "17_1", "17_5", "17_6", "17"]


def test_requeued_tasks_come_first_under_the_limit() -> None:
    jobs = [replace(job, task_limit=2) for job in (task(1), task(2), task(3, restarts=1))]
    throttled_by_job = {job.id: job.is_throttled for job in tasks_in_turn_of(*jobs)}
    assert throttled_by_job == {"17_1": False, "17_2": True, "17_3": False}


def test_a_released_array_stays_together() -> None:
    (whole_array,) = tasks_in_turn_of(record("0-5", marks="#hops-released"))
    assert whole_array.id == ARRAY


def test_arrays_are_handled_separately_and_other_jobs_unchanged() -> None:
    second_array = replace(record("0-1"), id=JobId("8"))
    single = replace(task(0), id=JobId("3"), array=JobId(""))
    queue = in_turn([record("0-1"), single, second_array], lambda _: 1, as_task)
    assert ids(queue) == ["3", "8_0", "8", "17_0", "17"]


@given(
    st.lists(st.sampled_from(["RUNNING", "PENDING", "COMPLETED", "HELD"]), max_size=8),
    st.integers(0, 6),
    st.integers(0, 5),
    st.integers(1, 8),
)
def test_every_task_appears_once_and_no_more_than_may_run(
    states: list[str], remaining_tasks: int, limit: int, room: int
) -> None:
    started_tasks = [
        task(i, hold=Hold.USER) if state == "HELD" else task(i, SlurmState[state])
        for i, state in enumerate(states)
    ]
    tasks = (
        [record(f"{len(started_tasks)}-{len(started_tasks) + remaining_tasks - 1}")]
        if remaining_tasks
        else []
    )
    visible_tasks = tasks_in_turn_of(
        *(replace(job, task_limit=limit) for job in started_tasks + tasks), room=room
    )
    numbers = [number for job in visible_tasks for number in (job.rest or [job_order(job.id)[2]])]
    assert sorted(numbers) == list(range(len(states) + remaining_tasks))
    running = sum(job.state is SlurmState.RUNNING for job in visible_tasks)
    ready = [j for j in visible_tasks if j.state is SlurmState.PENDING and j.hold is not Hold.USER]
    able = [j for j in ready if not j.is_throttled and j.rest is None]
    if limit:
        assert len(able) <= max(0, limit - running)
    if len(able) + running < min(limit or room, room):
        assert not any(
            job.rest or job.is_throttled for job in visible_tasks
        )  # no task waits without a reason


def _job(job_id: int, **fields: Any) -> dict[str, Any]:
    return {
        "job_id": job_id, "job_state": "PENDING", "comment": "hops:reqs=1", "submit_time": 5,
        "user_name": "u", "priority": 0, **fields,
    }  # fmt: skip


@pytest.mark.parametrize("new", [False, True], ids=["22.05", "24.11"])
def test_arrays_are_read_from_slurms_answer(*, new: bool) -> None:
    def number(value: int | None) -> object:
        if not new:
            return value
        return {"set": value is not None, "infinite": False, "number": value or 0}

    answer = [
        _job(17, array_job_id=number(17), array_task_id=number(None), array_task_string="3-9%4",
             array_max_tasks=number(4)),
        _job(20, array_job_id=number(17), array_task_id=number(0), array_task_string="",
             array_max_tasks=number(4), job_state="RUNNING"),
        _job(30, array_job_id=number(0), array_task_id=number(None), array_task_string="",
             array_max_tasks=number(0)),
    ]  # fmt: skip
    known_by_id = known_jobs(answer)
    pending_tasks, first, single = (job_reading(job, {}, known_by_id) for job in answer)
    assert (
        pending_tasks.id,
        pending_tasks.number,
        pending_tasks.array,
        str(pending_tasks.rest),
    ) == ("17", "", "", "3-9")
    assert (first.id, first.number, first.array, first.rest) == ("17_0", "20", "17", None)
    assert (single.id, single.number, single.array, single.rest) == ("30", "30", "", None)
    assert (pending_tasks.task_limit, first.task_limit, single.task_limit) == (4, 4, 0)


def test_tasks_whose_counterparts_succeeded_come_first() -> None:
    success = _job(8, array_job_id=7, array_task_id=2, array_task_string="", job_state="COMPLETED")
    failure = _job(9, array_job_id=7, array_task_id=0, array_task_string="", job_state="FAILED")
    answer = [
        success, failure, _job(7, array_job_id=7, array_task_id=None, array_task_string="1,3-9"),
        _job(17, array_job_id=17, array_task_id=None, array_task_string="0-9",
             dependency="aftercorr:7_*(unfulfilled)"),
    ]  # fmt: skip
    known_by_id = known_jobs(answer)
    jobs = [job_reading(answer[-1], {}, known_by_id)]
    tasks_in_turn = in_turn(
        jobs, lambda _: 2, lambda record, task: task_reading(record, task, known_by_id)
    )
    assert {job.id: job.dependency for job in tasks_in_turn} == {
        "17_2": False,
        "17_1": True,
        "17": True,
    }
    assert [str(job.rest) for job in tasks_in_turn if job.rest] == ["0,3-9"]


def look(now: float, *jobs: JobReading) -> Reading:
    return Reading(now, (), tuple(jobs))


@pytest.mark.parametrize(("is_throttled", "waiting_seconds"), [(False, 100.0), (True, 20.0)])
def test_a_task_has_waited_as_long_as_its_array(
    *, is_throttled: bool, waiting_seconds: float
) -> None:
    """Time in which the limit of its own array kept it back does not count."""
    pending_tasks = record("1-9", 1, is_throttled=is_throttled)
    assert eligible(pending_tasks, 0.0) is not is_throttled
    records = advance_all({}, look(120.0, task(0, submit=100.0), pending_tasks), {})
    records = advance_all(records, look(180.0, task(0, submit=100.0), pending_tasks), {})
    assert records[JobId("17_0")].wait_seconds == 80.0
    records = advance_all(records, look(200.0, task(1, submit=100.0), pending_tasks), {})
    assert records[JobId("17_1")].wait_seconds == waiting_seconds
    assert records[JobId("17_1")].end is None

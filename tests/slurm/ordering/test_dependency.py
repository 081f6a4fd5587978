"""Dependencies of held jobs, which slurmctld does not evaluate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hopsd.model.ids import Tasks
from hopsd.model.reading import SlurmState
from hopsd.slurm.ordering.dependency import (
    KnownJob,
    KnownJobs,
    awaited_jobs,
    dependency_text,
    is_stranded,
    unmet,
)

OTHER_JOBS = (
    KnownJob(1, "alice", "a", SlurmState.PENDING),
    KnownJob(2, "alice", "b", SlurmState.RUNNING),
    KnownJob(3, "bob", "a", SlurmState.COMPLETED),
    KnownJob(4, "alice", "c", SlurmState.FAILED),
)
SWEEP = (
    KnownJob(20, "dan", "s", SlurmState.PENDING, array=20, rest=Tasks.parse("4-9%3")),
    KnownJob(21, "dan", "s", SlurmState.COMPLETED, array=20, task=1),
    KnownJob(22, "dan", "s", SlurmState.FAILED, array=20, task=2),
    KnownJob(23, "dan", "s", SlurmState.RUNNING, array=20, task=3),
)
DONE_TASKS = (
    KnownJob(30, "dan", "d", SlurmState.COMPLETED, array=30, task=2),
    KnownJob(31, "dan", "d", SlurmState.FAILED, array=30, task=1),
)
KNOWN_JOBS = KnownJobs(OTHER_JOBS + SWEEP + DONE_TASKS)


@pytest.mark.parametrize(
    ("clauses", "waits"),
    [
        ("", False),
        (None, False),
        ("after:1(unfulfilled)", True),
        ("after:2+5(unfulfilled)", False),
        ("afterany:2(unfulfilled)", True),
        ("afterany:4(unfulfilled)", False),
        ("afterok:3(unfulfilled)", False),
        ("afterok:4(failed)", True),
        ("afternotok:4(unfulfilled)", False),
        ("afternotok:3(unfulfilled)", True),
        ("afterok:99(unfulfilled)", False),
        ("afterok:3(unfulfilled),afterany:2(unfulfilled)", True),
        ("afterok:3(unfulfilled),afterany:4(unfulfilled)", False),
        ("afterok:4(failed)?afterok:3(unfulfilled)", False),
        ("afterok:1(unfulfilled)?afterok:2(unfulfilled)", True),
        ("afterok:3_7(unfulfilled)", False),  # Slurm knows no such task
        ("afterok:20_1(unfulfilled)", False),
        ("afterok:21(unfulfilled)", False),
        ("afterany:20_2(unfulfilled)", False),
        ("afterany:20_3(unfulfilled)", True),
        ("afterany:20_4(unfulfilled)", True),
        ("after:20_3(unfulfilled)", False),
        ("after:20_*(unfulfilled)", True),
        ("afterany:20_*(unfulfilled)", True),
        ("afterany:20_12(unfulfilled)", False),
        ("afterany:30_*(unfulfilled)", False),
        ("afterany:30(unfulfilled)", False),
        ("afterok:30_*(unfulfilled)", True),
        ("afternotok:30_*(unfulfilled)", False),
        ("moonphase:3(unfulfilled)", True),
        ({"afterok": [3], "afterany": [], "singleton": False, "satisfy": "all"}, False),
        ({"afterok": [3, 1], "afterany": [4], "singleton": False, "satisfy": "all"}, True),
        ({"afterok": [1], "afterany": [4], "singleton": False, "satisfy": "any"}, False),
        ({"afterok": [], "singleton": False, "satisfy": "all"}, False),
    ],
)
def test_clauses_are_evaluated(clauses: object, waits: bool) -> None:
    waiting_job = KnownJob(9, "carol", "z", SlurmState.PENDING)
    assert unmet(clauses, waiting_job, KNOWN_JOBS) is waits  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("clauses", "for_good"),
    [
        (None, False),
        ("after:1(unfulfilled)", False),
        ("afterany:2(unfulfilled)", False),
        ("afterok:2(unfulfilled)", False),
        ("afterok:4(unfulfilled)", True),
        ("afterok:99(failed)", True),
        ("afterok:99(unfulfilled)", False),
        ("afternotok:3(unfulfilled)", True),
        ("afterok:4(failed),afterany:2(unfulfilled)", True),
        ("afterok:4(failed)?afterok:2(unfulfilled)", False),
        ("afterok:4(failed)?afternotok:3(unfulfilled)", True),
        ("singleton(unfulfilled)", False),
        ("moonphase:3(unfulfilled)", False),
        ("afterok:20_2(unfulfilled)", True),
        ("afterok:20_*(unfulfilled)", False),
        ("afterok:30_*(unfulfilled)", True),
        ({"afterok": [4], "singleton": False, "satisfy": "all"}, True),
    ],
)
def test_clauses_that_can_never_be_met_are_recognised(clauses: object, for_good: bool) -> None:
    waiting_job = KnownJob(9, "carol", "z", SlurmState.PENDING)
    assert is_stranded(clauses, waiting_job, KNOWN_JOBS) is for_good  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("task", "waits", "for_good"),
    [(1, False, False), (2, True, True), (3, True, False), (4, True, False), (40, True, False)],
)
def test_a_task_waits_for_the_task_of_its_number(task: int, waits: bool, for_good: bool) -> None:
    waiting_task = KnownJob(0, "dan", "t", SlurmState.PENDING, array=40, task=task)
    assert unmet("aftercorr:20_*(unfulfilled)", waiting_task, KNOWN_JOBS) is waits
    assert is_stranded("aftercorr:20_*(unfulfilled)", waiting_task, KNOWN_JOBS) is for_good


@pytest.mark.parametrize(
    ("id_", "user", "name", "waits"),
    [
        (9, "alice", "a", True),
        (9, "bob", "a", False),
        (9, "alice", "c", False),
        (1, "alice", "a", False),
    ],
)
def test_singleton_waits_for_earlier_jobs_of_user_and_name(
    id_: int, user: str, name: str, waits: bool
) -> None:
    waiting_job = KnownJob(id_, user, name, SlurmState.PENDING)
    assert (
        unmet("singleton(unfulfilled)", waiting_job, KnownJobs([*OTHER_JOBS, waiting_job])) is waits
    )


@pytest.mark.parametrize(
    ("clauses", "expected_ids"),
    [
        (None, set()),
        ("after:1(unfulfilled)", set()),
        ("afterok:1(unfulfilled),afternotok:2(unfulfilled)", {"1", "2"}),
        ("afterany:1(unfulfilled)?aftercorr:20_*(unfulfilled)", {"1", "20"}),
        ("afterok:20_3(unfulfilled)", {"20_3"}),
        ("singleton(unfulfilled)", {"1"}),
        ({"afterok": [1, 2], "after": [4], "singleton": False, "satisfy": "all"}, {"1", "2"}),
    ],
)
def test_jobs_that_other_jobs_depend_on_are_found(
    clauses: str | None, expected_ids: set[str]
) -> None:
    waiting = KnownJob(9, "alice", "a", SlurmState.PENDING, clauses)
    assert awaited_jobs([*OTHER_JOBS, waiting]) == expected_ids
    assert awaited_jobs([replace(waiting, state=SlurmState.RUNNING)]) == set()


def test_another_users_dependency_on_a_job_does_not_count() -> None:
    """Otherwise anybody could disable another user's measuring runs."""
    stranger = KnownJob(9, "mallory", "a", SlurmState.PENDING, "afterok:1(unfulfilled)")
    assert awaited_jobs([*OTHER_JOBS, stranger]) == set()
    assert awaited_jobs([*OTHER_JOBS, replace(stranger, user=OTHER_JOBS[0].user)]) == {
        str(OTHER_JOBS[0].id)
    }


@pytest.mark.parametrize(
    ("clauses", "text"),
    [
        ("afterok:17(unfulfilled),singleton(unfulfilled)", "afterok:17,singleton"),
        ("afterany:3?afternotok:4(failed)", "afterany:3?afternotok:4"),
        ({"afterok": [17], "singleton": True, "satisfy": "any"}, "afterok:17?singleton"),
        (None, ""),
    ],
)
def test_a_dependency_is_shown_as_requested(
    clauses: str | dict[str, Any] | None, text: str
) -> None:
    assert dependency_text(clauses) == text


@pytest.mark.slow
@pytest.mark.timeout(20)
def test_ten_thousand_jobs_of_one_user_take_linear_time() -> None:
    """With --dependency=singleton on each, every reading took half a minute, for everybody."""
    several = [
        KnownJob(n, "u", "j", SlurmState.PENDING, "singleton(unfulfilled)")
        for n in range(1, 10_001)
    ]
    tasks = [
        KnownJob(n, "u", "a", SlurmState.PENDING, None, 20_000, n) for n in range(30_000, 35_000)
    ]
    pending_tasks = KnownJob(
        20_000, "u", "a", SlurmState.PENDING, None, 20_000, None, Tasks.parse("0-4999")
    )
    later = [
        KnownJob(
            n, "u", "b", SlurmState.PENDING, "aftercorr:20000_*(unfulfilled)", 40_000, n - 50_000
        )
        for n in range(50_000, 55_000)
    ]
    jobs = [*several, *tasks, pending_tasks, *later]
    known_by_id = KnownJobs(jobs)
    waiting = [job.id for job in jobs if unmet(job.dependency, job, known_by_id)]
    assert waiting == [job.id for job in (*several[1:], *later)]
    assert awaited_jobs(jobs) == {"20000", *(job.key for job in several[:-1])}

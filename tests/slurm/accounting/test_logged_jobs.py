"""Jobs and their runs from Slurm's accounting."""

from __future__ import annotations

from datetime import datetime

import pytest

from hopsd.core.submission.options_text import MARK
from hopsd.model.history import LoggedJob
from hopsd.slurm.accounting.jobs import parse_logged

ROW = (
    "17|ann|lab|2026-01-31T12:00:00|2026-01-31T12:00:00|2026-01-31T13:00:00|2026-01-31T14:00:00"
    "|cpu=8,gres/gpu=2|cpu=8,gres/gpu=2|120|COMPLETED|"
)
NAMES = ("id", "user", "account", "submit", "eligible", "start", "end", "allocated", "asked",
         "limit", "state", "told")  # fmt: skip


def row(**changes: str) -> str:
    return "|".join((dict(zip(NAMES, ROW.split("|"), strict=True)) | changes).values())


def day(time: str) -> str:
    return f"2026-01-31T{time}"


def timestamp(time: str) -> float:
    return datetime.fromisoformat(day(time)).astimezone().timestamp()


def runs(job: LoggedJob) -> list[tuple[float, float | None, int]]:
    return [(run.start, run.end, run.gpus) for run in job.runs]


def test_a_job_with_one_run_is_read() -> None:
    (job,) = parse_logged([ROW])
    assert (job.id, job.user, job.account, job.gpus) == ("17", "ann", "lab", 2)
    assert (job.since, job.time_limit_seconds, job.gpu_type) == (timestamp("12:00:00"), 7200.0, "")
    assert runs(job) == [(timestamp("13:00:00"), timestamp("14:00:00"), 2)]


def test_a_requeued_job_is_one_job_with_two_runs() -> None:
    first = row(state="REQUEUED")
    second_run = row(submit=day("14:00:00"), eligible=day("14:02:00"), start=day("15:00:00"),
                end="Unknown", state="RUNNING")  # fmt: skip
    (job,) = parse_logged([second_run, first])  # in any order
    assert job.since == timestamp("12:00:00")
    assert runs(job) == [
        (timestamp("13:00:00"), timestamp("14:00:00"), 2),
        (timestamp("15:00:00"), None, 2),
    ]


def test_a_reused_id_is_another_job() -> None:
    later = row(submit=day("15:00:00"), eligible=day("15:00:00"), start=day("15:00:00"),
                end=day("16:00:00"), user="bob")  # fmt: skip
    assert [job.user for job in parse_logged([ROW, later])] == ["ann", "bob"]


def test_a_job_with_a_dependency_waits_from_its_fulfilment_on() -> None:
    (job,) = parse_logged([row(eligible=day("12:30:00"))])
    assert job.since == timestamp("12:30:00")


def test_hops_jobs_are_eligible_for_slurm_only_after_their_release() -> None:
    (job,) = parse_logged([row(eligible=day("13:00:00"), told="hops:asks|shape:any")])
    assert job.since == timestamp("12:00:00")


def test_a_job_that_never_started_has_no_run() -> None:
    (job,) = parse_logged(
        [row(start="Unknown", end=day("14:00:00"), allocated="", state="CANCELLED by 0")]
    )
    assert (job.runs, job.gpus, job.waits) == ((), 2, False)
    (job,) = parse_logged([row(start="Unknown", end="Unknown", allocated="", state="PENDING")])
    assert job.waits


@pytest.mark.parametrize("limit", ["UNLIMITED", "Partition_Limit", ""])
def test_an_unlimited_time_limit_is_read(limit: str) -> None:
    (job,) = parse_logged([row(limit=limit)])
    assert job.time_limit_seconds is None


def test_the_requested_type_is_read() -> None:
    (job,) = parse_logged([row(asked="cpu=8,gres/gpu=2,gres/gpu:a100=2")])
    assert job.gpu_type == "a100"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "17|ann",
        row(id="17_[1-4]"),
        row(id="-1"),
        row(user=""),
        row(allocated="cpu=8", asked="cpu=8"),
        row(allocated="gres/gpu=x"),
        row(allocated="gres/gpu=2,gres/gpu:cpu=2"),
        row(allocated="cpu=8", asked="cpu=8,gres/gpu=1,gres/gpu:cpu-epyc=1"),
        row(submit="yesterday"),
        row(submit="Unknown"),
    ],
)
def test_jobs_without_gpus_are_left_out(line: str) -> None:
    assert [job.id for job in parse_logged([line, row(id="18")])] == ["18"]


def test_a_job_that_was_a_hops_job_in_any_run_is_one() -> None:
    second_run = row(submit=day("14:00:00"), start=day("15:00:00"), end=day("16:00:00"))
    first = row(state="REQUEUED", told=f"{MARK}|shape:any")
    (job,) = parse_logged([first, second_run])
    assert job.ours
    assert not parse_logged([ROW])[0].ours

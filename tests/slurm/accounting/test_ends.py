"""The ends of jobs that slurmctld has forgotten, from sacct's lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

import pytest

from hopsd.errors import AnswerPendingError, SlurmError, SlurmUnavailableError
from hopsd.model.history import JobRecord
from hopsd.model.ids import JobId, UserName, WorkloadName
from hopsd.model.reading import JobReading, SlurmState
from hopsd.slurm.accounting.ends import AT_ONCE, EndedJobs, ended_jobs

FIELDS = ("job", "user", "uid", "submit", "start", "end", "state", "code", "nodes")
LINE = (
    "17|ann|1000|2026-01-31T12:00:00|2026-01-31T13:00:00|2026-01-31T14:00:00|COMPLETED|0:0|n[0-1]"
)


def line(**changes: str) -> str:
    return "|".join((dict(zip(FIELDS, LINE.split("|"), strict=True)) | changes).values())


def day(time: str) -> str:
    return f"2026-01-31T{time}"


def timestamp(time: str) -> float:
    return datetime.fromisoformat(day(time)).astimezone().timestamp()


def record(job: str = "17", restarts: int = 0) -> JobRecord:
    return JobRecord(
        JobId(job),
        UserName("ann"),
        "train",
        "hops:reqs=1",
        WorkloadName("w"),
        submit=timestamp("12:00:00"),
        seen=timestamp("13:30:00"),
        state=SlurmState.RUNNING,
        restarts=restarts,
        account="lab",
    )


def end_of(*lines: str, restarts: int = 0) -> JobReading | None:
    return ended_jobs(lines, [record(restarts=restarts)])[JobId("17")]


def test_a_job_that_ended_is_read_as_slurm_would_have_reported_it() -> None:
    end = end_of(LINE)
    assert end is not None
    assert (end.state, end.start, end.end) == (
        SlurmState.COMPLETED, timestamp("13:00:00"), timestamp("14:00:00"),
    )  # fmt: skip
    assert (end.ran_on, end.uid, end.account, end.name) == (("n0", "n1"), 1000, "lab", "train")
    assert not end.ended_in_profile


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("CANCELLED by 1000", SlurmState.CANCELLED),
        ("FAILED", SlurmState.FAILED),
        ("OUT_OF_MEMORY", SlurmState.FAILED),
        ("TIMEOUT", SlurmState.TIMEOUT),
        ("DEADLINE", SlurmState.TIMEOUT),
        ("NODE_FAIL", SlurmState.NODE_FAIL),
    ],
)
def test_each_state_has_its_meaning(word: str, state: SlurmState) -> None:
    end = end_of(line(state=word, code="1:9"))
    assert end is not None
    assert (end.state, end.exit_code, end.exit_signal, end.was_killed) == (state, 1, 9, False)


def test_a_requeued_job_ended_with_its_last_run() -> None:
    first = line(state="REQUEUED", end=day("13:40:00"))
    second = line(submit=day("13:40:00"), start=day("13:50:00"), end=day("13:55:00"), nodes="n7")
    end = end_of(second, first)
    assert end is not None
    assert (end.restarts, end.start, end.ran_on) == (1, timestamp("13:50:00"), ("n7",))


def test_a_job_that_ended_before_it_ran_has_no_nodes() -> None:
    end = end_of(line(state="CANCELLED by 0", start="None", nodes="None assigned"))
    assert end is not None
    assert (end.start, end.ran_on) == (0.0, ())


@pytest.mark.parametrize(
    "lines",
    [
        (),
        (line(state="RUNNING", end="Unknown"),),
        (line(state="COMPLETED", end="Unknown"),),
        (line(state="RESIZING"),),
        (line(user="bob"),),
        (line(submit=day("11:00:00")),),  # an earlier job with the same id
        (line(submit=day("12:30:00")),),  # a later job with the same id
        (LINE, line(submit=day("13:30:00"), state="PENDING", start="Unknown", end="Unknown")),
        (line(job="18"),),
        (line(submit="yesterday"),),
        (line(code="none"),),
        (line(uid="-1"),),
        ("17|ann",),
        ("",),
    ],
)
def test_a_job_without_a_known_end_is_none(lines: tuple[str, ...]) -> None:
    assert end_of(*lines) is None


def test_restarts_of_which_the_accounting_knows_nothing_any_more_count() -> None:
    end = end_of(line(submit=day("13:00:00")), restarts=3)
    assert end is not None
    assert end.restarts == 3


@dataclass
class Accounting:
    """Commands of an accounting that answers, hangs or refuses, as the test sets it."""

    error: SlurmError | None = None
    lines: list[str] = field(default_factory=lambda: [LINE])
    asked: list[list[str]] = field(default_factory=list)

    def run(self, *arguments: str) -> str:
        self.asked.append(arguments[-1].removeprefix("--jobs=").split(","))
        if self.error is not None:
            raise self.error
        return "\n".join(self.lines)


@dataclass
class Slurmctld:
    """Answers ``sdiag``."""

    unreported: int = 0

    def run(self, *arguments: str) -> str:
        assert arguments == ("sdiag",)
        return f"Agent queue size: 1\nDBD Agent queue size: {self.unreported}\n"


def test_a_job_is_left_out_until_there_is_an_answer() -> None:
    accounting = Accounting(AnswerPendingError("slurmdbd has not answered yet"))
    ends = EndedJobs(accounting, Slurmctld(), lambda: True)
    assert ends.read([record()]) == {}
    # The same question again, although more jobs are forgotten: its answer is on the way.
    assert ends.read([record("16"), record()]) == {}
    accounting.error = SlurmUnavailableError("slurmdbd does not answer")
    assert ends.read([record("16"), record()]) == {}
    accounting.error = None
    assert set(ends.read([record("16"), record()])) == {"16", "17"}
    assert accounting.asked == [["17"], ["17"], ["17"], ["16", "17"]]


def test_a_job_is_left_out_while_slurmctld_may_still_report_its_end() -> None:
    """As just after slurmdbd's start: it believes that a job runs that ended while it was down."""
    accounting, slurmctld = Accounting(lines=[line(end="Unknown", state="RUNNING")]), Slurmctld(2)
    ends = EndedJobs(accounting, slurmctld, lambda: True)
    assert ends.read([record()]) == {}
    accounting.lines = [LINE]
    assert ends.read([record()])[JobId("17")] is not None
    accounting.lines = []
    slurmctld.unreported = 0
    assert ends.read([record()]) == {"17": None}


def test_a_refusal_leaves_the_end_unknown() -> None:
    ends = EndedJobs(Accounting(SlurmError("access denied")), Slurmctld(), lambda: True)
    assert ends.read([record()]) == {"17": None}


def test_a_site_without_accounting_is_not_asked() -> None:
    accounting = Accounting()
    assert EndedJobs(accounting, Slurmctld(), lambda: False).read([record()]) == {"17": None}
    assert not accounting.asked


def test_many_jobs_are_asked_about_in_turns() -> None:
    accounting = Accounting()
    ends = EndedJobs(accounting, Slurmctld(), lambda: True)
    records = [record(str(number)) for number in range(AT_ONCE + 1)]
    answers = ends.read(records)
    assert len(answers) == AT_ONCE
    assert answers[JobId("17")] is not None
    remaining = [record for record in records if record.id not in answers]
    assert ends.read(remaining) == {str(AT_ONCE): None}

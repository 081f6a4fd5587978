"""How jobs ended that slurmctld has forgotten (MinJobAge in slurm.conf(5)), from sacct.

A job that ends while hopsd is down, or while slurmctld does not answer, may be forgotten before the
next reading. Slurm's accounting still has its state and its times, or will have them: while
slurmdbd does not answer, slurmctld keeps what it has to report.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from itertools import islice

import structlog

from hopsd.core.submission.nodelist import node_names
from hopsd.errors import AnswerPendingError, SlurmError, SlurmUnavailableError
from hopsd.model.history import JobRecord
from hopsd.model.ids import JobId, UserName
from hopsd.model.reading import JobReading, has_new_owner
from hopsd.slurm.accounting.local_time import epoch_seconds
from hopsd.slurm.command import Runner
from hopsd.slurm.parse import slurm_state

log = structlog.get_logger()

AT_ONCE = 500
"""Jobs per query: a longer list of ids may not fit into a command line of an old kernel."""

_UNREPORTED = re.compile(r"^DBD Agent queue size:\s*(\d+)", re.MULTILINE)

_FIELDS = ("JobID", "User", "UID", "Submit", "Start", "End", "State", "ExitCode", "NodeList")
"""None of these contains a user's text."""


class EndedJobs:
    """Asks about each forgotten job until Slurm's accounting has answered or refused."""

    def __init__(
        self, commands: Runner, slurmctld: Runner, has_accounting: Callable[[], bool]
    ) -> None:
        """``commands`` ask slurmdbd."""
        self._commands = commands
        self._slurmctld = slurmctld
        self._has_accounting = has_accounting
        self._asked: tuple[JobId, ...] = ()
        self._is_behind = False

    def read(self, records: Collection[JobRecord]) -> Mapping[JobId, JobReading | None]:
        """See :meth:`hopsd.slurm.port.Port.ended_jobs`."""
        by_id = {record.id: record for record in records}
        if not self._has_accounting():
            return dict.fromkeys(by_id)
        # A query without an answer is repeated as it was, since its answer may be on the way.
        is_repeatable = self._asked and by_id.keys() >= set(self._asked)
        if not is_repeatable:
            self._asked = tuple(islice(by_id, AT_ONCE))
            self._is_behind = self._has_unreported()
        jobs = self._asked
        try:
            output = self._commands.run(
                *("sacct", "--allusers", "--allocations", "--duplicates"),
                *("--noheader", "--parsable2"),
                *(f"--format={','.join(_FIELDS)}", f"--jobs={','.join(jobs)}"),
            )
        except AnswerPendingError:
            return {}
        except SlurmUnavailableError:  # the breaker has logged it, and knows when to ask again
            self._asked = ()
            return {}
        except SlurmError as error:
            log.warning("forgotten jobs", problem=str(error))
            self._asked = ()
            return dict.fromkeys(jobs)
        self._asked = ()
        ends = ended_jobs(output.splitlines(), [by_id[job] for job in jobs])
        if self._is_behind:
            return {job: end for job, end in ends.items() if end is not None}
        return ends

    def _has_unreported(self) -> bool:
        """Whether slurmctld has something to report to slurmdbd, which may be the end of a job."""
        try:
            match = _UNREPORTED.search(self._slurmctld.run("sdiag"))
        except SlurmError:
            return False
        return match is not None and match[1] != "0"


def ended_jobs(
    lines: Iterable[str], records: Iterable[JobRecord]
) -> dict[JobId, JobReading | None]:
    """Parse sacct's ``lines``, one for each run; a job whose last run has not ended there is None.

    A job that was requeued has a line for each run, submitted when it was requeued.
    """
    runs: dict[tuple[str, str], list[JobReading]] = {}
    for line in lines:
        values = line.split("|")
        if len(values) == len(_FIELDS) and (run := _run(*values)) is not None:
            runs.setdefault((run.id, run.user), []).append(run)
    return {record.id: _end(record, runs.get((record.id, record.user), ())) for record in records}


def _end(record: JobRecord, runs: Iterable[JobReading]) -> JobReading | None:
    """The last run of the record's job, as Slurm would have reported it."""
    runs = sorted(
        (run for run in runs if run.submit >= record.submit), key=lambda run: (run.submit, run.end)
    )
    if not runs or not runs[-1].state.finished or not runs[-1].end:
        return None
    last = replace(
        runs[-1],
        name=record.name,
        comment=record.comment,
        account=record.account,
        restarts=max(record.restarts, len(runs) - 1),
    )
    return None if has_new_owner(last, record.submit, record.restarts) else last


_EXIT = re.compile(r"(\d{1,3}):(\d{1,3})")


def _run(
    job: str,
    user: str,
    uid: str,
    submit: str,
    start: str,
    end: str,
    state: str,
    code: str,
    nodes: str,
) -> JobReading | None:
    word = state.partition(" ")[0]  # CANCELLED by 1000
    try:
        submitted, started, ended = map(epoch_seconds, (submit, start, end))
    except ValueError:
        return None
    exit_match = _EXIT.fullmatch(code)
    if submitted is None or exit_match is None or not uid.isdecimal() or word == "RESIZING":
        return None
    return JobReading(
        id=JobId(job),
        user=UserName(user),
        uid=int(uid),
        name="",
        comment="",
        partition="",
        state=slurm_state((word,)),
        submit=submitted,
        start=started or 0.0,
        end=ended or 0.0,
        requeue=False,
        exit_code=int(exit_match[1]),
        exit_signal=int(exit_match[2]),
        ran_on=() if nodes == "None assigned" else tuple(node_names(nodes)),
        state_text=word,
    )

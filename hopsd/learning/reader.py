"""Reads what jobs report of themselves from the spool folder: shared, world-writable, sticky.

A report is believed only from a regular file with one name that the job's own user owns, for a
node that the run really has. What is refused is named once, with its reason, and removed.
"""

from __future__ import annotations

import os
import stat
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hopsd.core.report.rates import Counted, Process, counted, process_of, speeds
from hopsd.core.report.reports import FILE_NAME, MAX_BYTES, Report, parse_report
from hopsd.core.report.training_state import Run, programs_of, restart_seconds, samples_done
from hopsd.core.submission.workload import workload_of
from hopsd.errors import FormatError, InputError
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.model.knowledge import PhaseRecord, ThroughputRecord
from hopsd.model.reading import JobReading, Reading

MAX_FILES_PER_JOB = 4096
ORPHAN_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Refused:
    """A file that was not believed."""

    file: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Collected:
    """What one look into the folder taught.

    ``records`` and ``phases`` are new since the last look. ``samples_done`` by job over all of
    its runs, as far as their reports are there. ``restart_seconds``: from Slurm's start of the
    present run to its first optimizer step. ``programs``: hash of the script that a job trains
    with, in its newest run that told it. ``unread``: why the folder could not be read, if so.
    """

    records: tuple[ThroughputRecord, ...] = ()
    samples_done: Mapping[JobId, float] = field(default_factory=dict)
    restart_seconds: Mapping[JobId, float] = field(default_factory=dict)
    refused: tuple[Refused, ...] = ()
    phases: tuple[PhaseRecord, ...] = ()
    programs: Mapping[JobId, str] = field(default_factory=dict)
    unread: str = ""


class ReportReader:
    """Remembers between looks what it has used and where each run of a job was.

    All of it can be lost: a new reader counts once more what the folder holds. What a look
    taught is only spent by :meth:`settle`; without it the next look teaches the same again.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._fresh: set[str] = set()
        self._read: dict[str, tuple[tuple[int, int, int], Report]] = {}
        self._used: dict[Run, dict[Process, Counted]] = {}
        self._ran: dict[Run, Allocation] = {}
        self._stuck: set[tuple[str, int]] = set()
        self._spent: list[str] = []
        self._settled = (self._read, self._used)

    def collect(self, reading: Reading) -> Collected:
        """Read what is new since the last look that was settled.

        A folder that is missing or out of reach holds no reports.
        """
        read, used = self._settled
        self._read = dict(read)
        self._used = {run: dict(processes) for run, processes in used.items()}
        jobs = {job.id: job for job in reading.jobs}
        self._remember(jobs)
        self._fresh.clear()
        refused: list[Refused] = []
        reports: dict[str, Report] = {}
        files: Counter[str] = Counter()
        entries, unread = self._entries()
        for entry in entries:
            files[entry.name.partition(".")[0]] += 1
            try:
                report = self._believe(entry, jobs, files, reading.now)
            except (OSError, InputError) as error:
                refused += self._refuse(entry, str(error))
            else:
                if report is not None:
                    reports[entry.name] = report
        self._read = {name: kept for name, kept in self._read.items() if name in reports}
        programs = programs_of(reports.values())
        records = tuple(self._records(reports.values(), jobs, reading, programs))
        fresh = [report for name, report in reports.items() if name in self._fresh]
        self._spent = [name for name, r in reports.items() if jobs[r.job].state.finished]
        return Collected(
            records,
            samples_done(reports.values(), jobs),
            restart_seconds(reports.values(), jobs),
            tuple(refused),
            tuple(_phase_records(fresh, jobs, reading, programs)),
            {job: program for (job, _), program in sorted(programs.items())},
            unread,
        )

    def settle(self) -> None:
        """What the last look taught is safe elsewhere: reports of finished jobs are removed."""
        for name in self._spent:
            self._remove(name)
        self._spent = []
        self._settled = (self._read, self._used)

    def _remember(self, jobs: Mapping[JobId, JobReading]) -> None:
        """Where runs are: a report of a past run may be read after the job has moved on."""
        for job in jobs.values():
            if job.allocation:
                self._ran[job.id, job.restarts] = job.allocation
        self._ran = {run: a for run, a in self._ran.items() if run[0] in jobs}
        self._used = {run: used for run, used in self._used.items() if run[0] in jobs}

    def _entries(self) -> tuple[list[os.DirEntry[str]], str]:
        """What is in the folder, and why it cannot be told where it cannot."""
        try:
            with os.scandir(self._directory) as entries:
                return sorted(entries, key=lambda entry: entry.name), ""
        except OSError as error:
            return [], f"{self._directory}: {error.strerror}"

    def _believe(
        self,
        entry: os.DirEntry[str],
        jobs: Mapping[JobId, JobReading],
        files: Counter[str],
        now: float,
    ) -> Report | None:
        """A report that can be believed; None where it is too early to tell.

        Raises:
            FormatError: it is not to be believed.
            OSError: it cannot be read.
        """
        status = entry.stat(follow_symlinks=False)
        name = FILE_NAME.fullmatch(entry.name)
        job = jobs.get(JobId(name[1])) if name else None
        if name is None or job is None:
            # A write in progress, or a job that the reading is too old to know: give it time.
            if now - status.st_mtime > ORPHAN_SECONDS:
                self._remove(entry.name)
            return None
        if files[job.id] > MAX_FILES_PER_JOB:
            raise FormatError(f"more than {MAX_FILES_PER_JOB} reports of one job")
        if int(name[2]) > job.restarts:
            return None
        stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
        known = self._read.get(entry.name)
        if known is None or known[0] != stamp:
            data = _read_owned(self._directory / entry.name, job.uid)
            known = (stamp, parse_report(data, entry.name, now))
            self._fresh.add(entry.name)
        where = self._ran.get((job.id, known[1].run))
        if where is not None and known[1].node not in where.nodes:
            raise FormatError(f"node: run {known[1].run} is on {', '.join(where.nodes)}")
        self._read[entry.name] = known
        return known[1]

    def _refuse(self, entry: os.DirEntry[str], reason: str) -> list[Refused]:
        """Name a file once and remove it; one that cannot be removed is not named again."""
        try:
            key = (entry.name, entry.stat(follow_symlinks=False).st_mtime_ns)
        except FileNotFoundError:  # replaced or removed while we looked
            return []
        if key in self._stuck:
            return []
        if not self._remove(entry.name):
            self._stuck.add(key)
        return [Refused(entry.name[:300], reason)]

    def _remove(self, name: str) -> bool:
        with suppress(OSError):
            (self._directory / name).unlink()
            return True
        return False

    def _records(
        self,
        reports: Iterable[Report],
        jobs: Mapping[JobId, JobReading],
        reading: Reading,
        programs: Mapping[Run, str],
    ) -> Iterator[ThroughputRecord]:
        types = {node.name: node.gpu_type for node in reading.nodes}
        runs: dict[Run, list[Report]] = defaultdict(list)
        for report in reports:
            runs[report.job, report.run].append(report)
        for run, members in runs.items():
            allocation = self._ran.get(run)
            if not allocation:
                continue
            used = self._used.setdefault(run, {})
            by_node, told = speeds(members, used, allocation)
            used.update({process_of(report): counted(report) for report in told})
            workload = workload_of(jobs[run[0]], programs.get(run, ""))
            for node, per_gpu in by_node.items():
                if node in types:
                    yield ThroughputRecord(
                        workload=workload,
                        gpu_type=types[node],
                        node=node,
                        gpus=allocation.gpus,
                        nodes=len(allocation.nodes),
                        per_gpu=per_gpu,
                        at=min(reading.now, max(report.at for report in told)),
                    )


def _read_owned(path: Path, uid: int) -> bytes:
    """A report's bytes, from a plain file with one link that ``uid`` owns.

    Raises:
        FormatError: it is not such a file, or larger than a report is.
        OSError: it cannot be read; a symbolic link is not followed.
    """
    # O_NONBLOCK: opening a FIFO that somebody put there must not stop the daemon.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            raise FormatError("not a regular file with one name")
        if status.st_uid != uid:
            raise FormatError(f"owner {status.st_uid} is not the job's user {uid}")
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise FormatError(f"longer than {MAX_BYTES} bytes")
    return data


def _phase_records(
    reports: Iterable[Report],
    jobs: Mapping[JobId, JobReading],
    reading: Reading,
    programs: Mapping[Run, str],
) -> Iterator[PhaseRecord]:
    """Of processes on nodes whose GPU type is known."""
    types = {node.name: node.gpu_type for node in reading.nodes}
    for report in reports:
        if report.phases is not None and report.node in types:
            yield PhaseRecord(
                workload=workload_of(jobs[report.job], programs.get((report.job, report.run), "")),
                gpu_type=types[report.node],
                job=report.job,
                run=report.run,
                node=report.node,
                rank=report.rank,
                pid=report.pid,
                world=report.world,
                at=min(reading.now, report.at),
                phases=report.phases,
            )

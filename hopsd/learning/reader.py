"""Reads jobs' reports from the spool folder.

A report must be a regular file with one link, be owned by the job's user, and name a node of the
run. Other files are reported once, with the reason, and removed.
"""

from __future__ import annotations

import stat
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from hopsd.core.report.rank import Rank
from hopsd.core.report.rates import Counters, Process, counters_of, process_of, speeds
from hopsd.core.report.reports import MAX_BYTES, Report, parse_report
from hopsd.core.report.training_state import (
    Run,
    answers_signal,
    communication_timed,
    gpus_taken,
    gpus_used,
    keeps_steps,
    out_of_memory,
    programs_of,
    restart_seconds,
    samples_done,
    samples_planned,
    seen_saving,
    time_known,
)
from hopsd.core.submission.workload import workload_of
from hopsd.errors import FormatError, InputError
from hopsd.learning.spool import Spool
from hopsd.model import bounds
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId, host_of
from hopsd.model.isolation import describe_error
from hopsd.model.knowledge import PhaseRecord, Shortage, ThroughputRecord
from hopsd.model.reading import JobReading, Reading, SlurmState, has_new_owner

MAX_PROGRAMS_PER_JOB = 16
"""Maximum distinct programs: a script that its user edits between runs has few. Each is a separate
workload, which hops stores, fits and plans with."""
MAX_FILES_PER_JOB = 4096
MAX_FILES_PER_USER = 65_536
"""A scan checks each file and keeps its report: 0.2 GB."""

MAX_READ_PER_USER = 4 * 2**20
"""Bytes of one user's reports read in one scan: some 1,500 changed reports."""

Stamp = tuple[int, int, int]
"""Inode, modification time and size of a file, which show whether it was already read."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A report file that was refused."""

    file: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Collection:
    """The result of one scan of the folder.

    ``records`` and ``phases`` are new since the last scan; ``refusals`` are this scan's. ``unread``
    says why the folder could not be read, if so. ``ranks`` has the last reports of all ranks of
    running trainings in which a rank says that it stalls. ``shortages`` are GPU types whose memory
    was too small. The others are mappings by job:

    - ``samples_done``: over all runs whose reports still exist;
    - ``samples_planned``: the total that the job's loops show;
    - ``restart_seconds``: from Slurm's start of the current run to its first optimizer step;
    - ``programs``: the hash of the training script, from the newest run that reported it;
    - ``steps``: the steps done in the current run;
    - ``gpus_used``: the GPUs used by trainings that have run for minutes;
    - ``gpus_taken``: the GPUs on which the driver sees any process;
    - ``saved``: whether a training was seen to save;
    - ``communication_timed``: whether the ranks report communication times;
    - ``keeps_steps``: whether steps have the same samples on any number of GPUs;
    - ``time_known``: whether reports show how long an iteration takes;
    - ``answers_signal``: whether all ranks handle the signal of the job's script.
    """

    records: tuple[ThroughputRecord, ...] = ()
    samples_done: Mapping[JobId, float] = field(default_factory=dict)
    restart_seconds: Mapping[JobId, float] = field(default_factory=dict)
    refusals: tuple[Refusal, ...] = ()
    phases: tuple[PhaseRecord, ...] = ()
    programs: Mapping[JobId, str] = field(default_factory=dict)
    saved: Mapping[JobId, bool] = field(default_factory=dict)
    shortages: tuple[Shortage, ...] = ()
    samples_planned: Mapping[JobId, float | None] = field(default_factory=dict)
    unread: str = ""
    communication_timed: Mapping[JobId, bool] = field(default_factory=dict)
    ranks: tuple[Rank, ...] = ()
    steps: Mapping[JobId, int] = field(default_factory=dict)
    gpus_used: Mapping[JobId, int] = field(default_factory=dict)
    gpus_taken: Mapping[JobId, int] = field(default_factory=dict)
    keeps_steps: Mapping[JobId, bool] = field(default_factory=dict)
    time_known: Mapping[JobId, bool] = field(default_factory=dict)
    answers_signal: Mapping[JobId, bool] = field(default_factory=dict)


class _Budget:
    """The bytes that each user may still use in a scan; ``resume`` has the first postponed file."""

    def __init__(self) -> None:
        self._remaining: dict[int, int] = {}
        self.resume: dict[int, str] = {}

    def grants(self, uid: int, name: str, size: int) -> bool:
        remaining = self._remaining.get(uid, MAX_READ_PER_USER)
        if uid in self.resume or remaining <= 0:
            self.resume.setdefault(uid, name)
            return False
        self._remaining[uid] = remaining - min(size, MAX_BYTES)
        return True


class ReportReader:
    """Remembers between scans which reports it has consumed and where each run of a job was.

    This state may be lost: a new reader counts the folder's reports again. :meth:`settle` confirms
    the results of a scan; without it the next scan returns them again.
    """

    def __init__(self, directory: Path) -> None:
        self._spool = Spool(directory)
        self._fresh: set[str] = set()
        self._reports_read: dict[str, tuple[Stamp, Report]] = {}
        self._first_seen: dict[str, float] = {}
        self._programs: dict[JobId, list[str]] = {}
        self._counters: dict[Run, dict[Process, Counters]] = {}
        self._identities: dict[JobId, tuple[float, int]] = {}
        self._allocations: dict[Run, Allocation] = {}
        self._single_gpus: dict[Run, int] = {}
        self._resume: dict[int, str] = {}
        self._finished_files: list[str] = []
        self._settled_state = (self._reports_read, self._counters)

    def close(self) -> None:
        """Close the spool folder."""
        self._spool.close()

    def collect(self, reading: Reading) -> Collection:
        """Read the reports that are new since the last settled scan.

        A missing or unreachable folder counts as empty, and so do the reports of a job that make a
        step raise.
        """
        settled_reports, settled_counters = self._settled_state
        self._reports_read = dict(settled_reports)
        self._counters = {run: dict(processes) for run, processes in settled_counters.items()}
        jobs = {job.id: job for job in reading.jobs}
        self._remember(jobs)
        self._fresh.clear()
        files = {JobId(job.number or job.id): job for job in reading.jobs if job.rest is None}
        names, orphans, unread = self._spool.look(files, reading.now)
        refusals = [Refusal(name[:300], "of no job, and cannot be removed") for name in orphans]
        by_job: dict[JobId, dict[str, Report]] = defaultdict(dict)
        for name, job, report in self._valid_reports(names, files, reading.now, refusals):
            by_job[job][name] = report
        by_job_results = [
            result
            for job, reports in by_job.items()
            if (result := self._results_of_job(jobs[job], reports, reading, refusals)) is not None
        ]
        self._reports_read = {
            name: self._reports_read[name] for result in by_job.values() for name in result
        }
        self._first_seen = {
            name: time for name, time in self._first_seen.items() if name in self._reports_read
        }
        self._finished_files = [
            name for job, reports in by_job.items() if jobs[job].state.finished for name in reports
        ]
        return _merge(by_job_results, refusals, unread)

    def settle(self) -> None:
        """Confirm that the last scan's results are stored; remove reports of finished jobs."""
        for name in self._finished_files:
            self._spool.remove(name)
        self._finished_files = []
        for name in self._fresh & self._reports_read.keys():
            stamp, report = self._reports_read[name]
            self._reports_read[name] = stamp, _without_histograms(report)
        self._settled_state = (self._reports_read, self._counters)

    def accepted_names(self, prefix: str) -> list[str]:
        """The names with this prefix of reports that the last settled scan accepted. May be called
        from a thread other than the scan's.
        """
        reports, _ = self._settled_state
        return [name for name in reports if name.startswith(prefix)]

    def _remember(self, jobs: Mapping[JobId, JobReading]) -> None:
        """Note where runs are: a run's report may be read after the job has moved."""
        for job in jobs.values():
            first = (job.submit, job.restarts)
            if has_new_owner(job, *self._identities.get(job.id, first)):
                self._forget(job.id)
            self._identities[job.id] = first
            if job.allocation:
                self._allocations[job.id, job.restarts] = job.allocation
            indices = [index for node in job.gpu_indices.values() for index in node]
            if job.allocation.gpus == len(indices) == 1:
                self._single_gpus[job.id, job.restarts] = indices[0]
        self._identities = {job: i for job, i in self._identities.items() if job in jobs}
        self._programs = {job: names for job, names in self._programs.items() if job in jobs}
        self._allocations = {run: a for run, a in self._allocations.items() if run[0] in jobs}
        self._single_gpus = {run: i for run, i in self._single_gpus.items() if run[0] in jobs}
        self._counters = {
            run: counters for run, counters in self._counters.items() if run[0] in jobs
        }

    def _forget(self, job: JobId) -> None:
        """Forget a job's runs because Slurm gave its number to another job."""
        self._programs.pop(job, None)
        self._allocations = {run: a for run, a in self._allocations.items() if run[0] != job}
        self._single_gpus = {run: i for run, i in self._single_gpus.items() if run[0] != job}
        self._counters = {run: c for run, c in self._counters.items() if run[0] != job}
        self._reports_read = {
            name: entry for name, entry in self._reports_read.items() if entry[1].job != job
        }

    def _valid_reports(
        self,
        names: Iterable[str],
        jobs: Mapping[JobId, JobReading],
        now: float,
        refusals: list[Refusal],
    ) -> Iterator[tuple[str, JobId, Report]]:
        """Yield the valid reports of ``jobs``, which are keyed by Slurm's job number; append the
        others to ``refusals``.

        Only files of the job's user count towards the limits. The next scan continues where a
        limit ended this one.
        """
        files: Counter[JobId | int] = Counter()
        budget = _Budget()
        for name, job in self._in_scan_order(names, jobs):
            try:
                report = self._validate_report(name, job, files, budget, now)
            except FileNotFoundError:  # replaced or removed meanwhile
                self._spool.forget(name)
            except Exception as error:  # any error that this file causes
                self._refuse(name, error, refusals)
            else:
                if report is not None:
                    yield name, job.id, report
        self._resume = budget.resume

    def _in_scan_order(
        self, names: Iterable[str], jobs: Mapping[JobId, JobReading]
    ) -> list[tuple[str, JobReading]]:
        """Order the files so that each user's begin where the last scan stopped."""
        entries = [(name, jobs[JobId(name.partition(".")[0])]) for name in names]
        return sorted(entries, key=lambda f: (f[0] < self._resume.get(f[1].uid, ""), f[0]))

    def _validate_report(
        self, name: str, job: JobReading, files: Counter[JobId | int], budget: _Budget, now: float
    ) -> Report | None:
        """Return the report if it is valid; None if it is too early to tell.

        Raises:
            FormatError: the report is refused.
            OSError: the report cannot be read.
        """
        status = (self._spool.folder / name).lstat()
        if status.st_uid != job.uid:
            raise FormatError(f"owner {status.st_uid} is not the job's user {job.uid}")
        if not stat.S_ISREG(status.st_mode):
            raise FormatError("not a regular file with one name")
        files[job.id] += 1
        if files[job.id] > MAX_FILES_PER_JOB:
            raise FormatError(f"more than {MAX_FILES_PER_JOB} reports of one job")
        files[job.uid] += 1
        if files[job.uid] > MAX_FILES_PER_USER:
            raise FormatError(f"more than {MAX_FILES_PER_USER} reports of one user")
        run = int(name.split(".")[1])
        has_begun = run < job.restarts or (
            run == job.restarts and job.state is not SlurmState.PENDING
        )
        if not has_begun or job.script is None:
            return None
        stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
        entry = self._reports_read.get(name)
        if entry is None or entry[0] != stamp:
            if not budget.grants(job.uid, name, status.st_size):
                return entry[1] if entry else None
            report = parse_report(self._spool.read_owned(name, job.uid), name, now)
            self._check_owner(report, job)
            # An array task's report has its job number, not its id.
            entry = (stamp, replace(report, job=job.id))
            self._fresh.add(name)
            self._first_seen[name] = now
        allocation = self._allocations.get((job.id, entry[1].run))
        if allocation is not None:
            # A report has Slurm's name of the node.
            names = {host_of(node): node for node in allocation.nodes}
            host = host_of(entry[1].node)
            if host not in names:
                raise FormatError(f"node: run {entry[1].run} is on {', '.join(names)[:300]}")
            entry = (stamp, replace(entry[1], node=names[host]))
        self._reports_read[name] = entry
        return entry[1]

    def _check_owner(self, report: Report, job: JobReading) -> None:
        """Refuse an earlier job's report: after a loss Slurm gives a number to a second job."""
        runs = job.state is SlurmState.RUNNING and report.run == job.restarts
        if runs and report.at < job.start - bounds.CLOCK_SKEW_SECONDS:
            raise FormatError("at: before the job's start; from an earlier job with this number")

    def _results_of_job(
        self,
        job: JobReading,
        reports: Mapping[str, Report],
        reading: Reading,
        refusals: list[Refusal],
    ) -> Collection | None:
        """Return the results of one job's reports; None, with the reports refused, on an error."""
        try:
            return self._collect(job, reports, reading)
        except Exception as error:
            for name in reports:
                self._refuse(name, error, refusals)
            return None

    def _refuse(self, name: str, error: Exception, refusals: list[Refusal]) -> None:
        """Report a file once and remove it; one that cannot be removed is not reported again."""
        if not self._spool.stuck(name):
            self._spool.remove(name)
            is_known_error = isinstance(error, OSError | InputError)
            refusals.append(
                Refusal(name[:300], str(error) if is_known_error else describe_error(error))
            )

    def _collect(
        self, job: JobReading, reports: Mapping[str, Report], reading: Reading
    ) -> Collection:
        jobs = {job.id: job}
        programs = self._accepted_programs(programs_of(reports.values()))
        records = tuple(self._records(reports.values(), jobs, reading, programs))
        fresh = [report for name, report in reports.items() if name in self._fresh]
        return Collection(
            records,
            samples_done(reports.values(), jobs),
            restart_seconds(reports.values(), jobs),
            phases=tuple(_phase_records(fresh, jobs, reading, programs)),
            programs={job: program for (job, _), program in sorted(programs.items())},
            saved=seen_saving(reports.values()),
            shortages=tuple(self._shortages(reports.values(), job, reading, programs)),
            samples_planned=samples_planned(reports.values(), jobs),
            communication_timed=communication_timed(reports.values()),
            ranks=tuple(self._ranks(job, reports)),
            steps={job.id: sum(r.iterations for r in reports.values() if r.run == job.restarts)},
            gpus_used=gpus_used(reports.values(), job),
            gpus_taken=gpus_taken(reports.values(), job),
            keeps_steps=keeps_steps(reports.values()),
            time_known=time_known(reports.values()),
            answers_signal=answers_signal(reports.values(), job),
        )

    def _accepted_programs(self, programs: Mapping[Run, str]) -> dict[Run, str]:
        """Replace programs beyond :data:`MAX_PROGRAMS_PER_JOB` by the job's last accepted one."""
        programs_of_run = {}
        for run, program in sorted(programs.items()):
            names = self._programs.setdefault(run[0], [])
            if program not in names and len(names) < MAX_PROGRAMS_PER_JOB:
                names.append(program)
            programs_of_run[run] = program if program in names else names[-1]
        return programs_of_run

    def _ranks(self, job: JobReading, reports: Mapping[str, Report]) -> Iterator[Rank]:
        """Yield the last reports of the current run's ranks, if one says that it stalls."""
        present = {name: r for name, r in reports.items() if r.run == job.restarts}
        stands_still = any(r.pause is not None and r.pause.is_stalled for r in present.values())
        if job.state is not SlurmState.RUNNING or not stands_still:
            return
        for name, report in present.items():
            (_, mtime, _), _ = self._reports_read[name]
            yield Rank(
                report.job,
                report.node,
                report.rank,
                report.world,
                report.pid,
                report.program,
                report.final,
                report.pause,
                heard_at=self._first_seen.get(name, 0.0),
                written_at=mtime / 1e9,
            )

    def _shortages(
        self,
        reports: Iterable[Report],
        job: JobReading,
        reading: Reading,
        programs: Mapping[Run, str],
    ) -> Iterator[Shortage]:
        types = {node.name: node.gpu_type for node in reading.nodes}
        for report in out_of_memory(reports, job):
            allocation = self._allocations.get((job.id, report.run))
            if allocation and report.node in types:
                yield Shortage(
                    user=job.user,
                    workload=workload_of(job, programs.get((job.id, report.run), "")),
                    gpu_type=types[report.node],
                    gpus=allocation.gpus,
                    at=min(reading.now, report.at),
                )

    def _records(
        self,
        reports: Iterable[Report],
        jobs: Mapping[JobId, JobReading],
        reading: Reading,
        programs: Mapping[Run, str],
    ) -> Iterator[ThroughputRecord]:
        types = {node.name: node.gpu_type for node in reading.nodes}
        leaf = {node.name: node.leaf for node in reading.nodes}
        runs: dict[Run, list[Report]] = defaultdict(list)
        for report in reports:
            runs[report.job, report.run].append(report)
        for run, members in runs.items():
            allocation = self._allocations.get(run)
            if not allocation:
                continue
            counters = self._counters.setdefault(run, {})
            run_speeds = speeds(members, counters, allocation)
            counters.update(
                {process_of(report): counters_of(report) for report in run_speeds.reports}
            )
            workload = workload_of(jobs[run[0]], programs.get(run, ""))
            for node, per_gpu in run_speeds.by_node.items():
                if not bounds.SPEED.holds(per_gpu):
                    raise FormatError(
                        f"{per_gpu:g} samples/s per GPU on {node}, not {bounds.SPEED}"
                    )
                if node in types:
                    yield ThroughputRecord(
                        workload=workload,
                        gpu_type=types[node],
                        node=node,
                        gpus=allocation.gpus,
                        nodes=len(allocation.nodes),
                        per_gpu=per_gpu,
                        at=min(reading.now, max(report.at for report in run_speeds.reports)),
                        user=jobs[run[0]].user,
                        batch=run_speeds.batch,
                        leaves=len({leaf.get(name, "") for name in allocation.nodes}),
                        job=run[0],
                        gpu=self._single_gpus.get(run),
                    )


def _merge(results: Iterable[Collection], refusals: Iterable[Refusal], unread: str) -> Collection:
    """Merge the results of all jobs."""
    parts = tuple(results)
    return Collection(
        tuple(record for part in parts for record in part.records),
        {job: samples for part in parts for job, samples in part.samples_done.items()},
        {job: s for part in parts for job, s in part.restart_seconds.items()},
        tuple(refusals),
        tuple(record for part in parts for record in part.phases),
        {job: program for part in parts for job, program in part.programs.items()},
        {job: has_saved for part in parts for job, has_saved in part.saved.items()},
        tuple(shortage for part in parts for shortage in part.shortages),
        {job: samples for part in parts for job, samples in part.samples_planned.items()},
        unread,
        {job: is_timed for part in parts for job, is_timed in part.communication_timed.items()},
        tuple(rank for part in parts for rank in part.ranks),
        {job: steps for part in parts for job, steps in part.steps.items()},
        {job: gpus for part in parts for job, gpus in part.gpus_used.items()},
        {job: gpus for part in parts for job, gpus in part.gpus_taken.items()},
        {job: keeps for part in parts for job, keeps in part.keeps_steps.items()},
        {job: known for part in parts for job, known in part.time_known.items()},
        {job: answers for part in parts for job, answers in part.answers_signal.items()},
    )


def _without_histograms(report: Report) -> Report:
    """Remove the histograms, which take most of a report's memory, once its phases are stored."""
    if report.phases is None:
        return report
    return replace(report, phases=replace(report.phases, data_bins={}, backward_by_data={}))


def _phase_records(
    reports: Iterable[Report],
    jobs: Mapping[JobId, JobReading],
    reading: Reading,
    programs: Mapping[Run, str],
) -> Iterator[PhaseRecord]:
    """Yield phase records of the processes on nodes whose GPU type is known."""
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
                user=jobs[report.job].user,
            )

"""Turns jobs' valid reports into stored knowledge."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hopsd.core.report.rank import Rank
from hopsd.core.submission.workload import workload_of
from hopsd.learning.fits import Fits
from hopsd.learning.reader import Collection, Refusal
from hopsd.learning.reading_thread import BackgroundReader
from hopsd.model.ids import JobId
from hopsd.model.isolation import describe_error, find_failing_items
from hopsd.model.journal import HOUR
from hopsd.model.reading import Reading
from hopsd.store.history import History

MAX_EVENTS = 20
"""Maximum events per scan for refused reports: a user may put any number of files there."""

MAX_EVENTS_PER_HOUR = 200
"""Maximum events of all scans: a user may cause a scan every few seconds, and events are kept for
months."""


class Learner:
    """Learns from reports, and keeps state between scans. ``refusal_count`` counts refused reports;
    ``ranks``, ``steps``, ``gpus_used`` and ``gpus_taken`` are those of the last scan's
    :class:`Collection`.
    """

    def __init__(self, store: History, folder: Path) -> None:
        self._store = store
        self._fits = Fits(store)
        self._reports = BackgroundReader(folder)
        self._event_times: deque[float] = deque(maxlen=MAX_EVENTS_PER_HOUR)
        self.refusal_count = 0
        self.ranks: tuple[Rank, ...] = ()
        self.steps: Mapping[JobId, int] = {}
        self.gpus_used: Mapping[JobId, int] = {}
        self.gpus_taken: Mapping[JobId, int] = {}

    def use_folder(self, folder: Path) -> None:
        """Switch to the folder of a new configuration."""
        self._reports.close()
        self._reports = BackgroundReader(folder)

    def accepted_reports(self, prefix: str) -> list[str]:
        """See :meth:`hopsd.learning.reader.ReportReader.accepted_names`."""
        return self._reports.accepted_names(prefix)

    def learn(self, reading: Reading, half_life_seconds: float) -> str:
        """Learn speeds, phases of iterations and progress of the jobs in ``reading``.

        Returns why the reports could not be read, "" if they could. If a scan takes longer than a
        tick waits, a later call learns from it.

        A report that makes a step raise is set aside and recorded as an event; learning from the
        other jobs continues.

        Raises:
            StoreUnavailableError: the next scan reads the same reports again.
        """
        reading, results = self._reports.collect(reading)
        self.ranks, self.steps = results.ranks, results.steps
        self.gpus_used, self.gpus_taken = results.gpus_used, results.gpus_taken
        _, speeds = find_failing_items(results.records, self._store.add_throughput)
        _, phases = find_failing_items(results.phases, self._fits.note)
        unfit = self._fits.renew(half_life_seconds, reading.now)
        _, short = find_failing_items(results.shortages, self._store.save_shortages)
        _, progress = find_failing_items(
            tuple(results.samples_done),
            lambda jobs: self._save_progress(jobs, results, reading),
        )
        self._record_refusals(results.refusals, reading.now)
        self._record_failures(
            [
                *((record.workload, error) for record, error in speeds),
                *((record.workload, error) for record, error in phases),
                *((shortage.workload, error) for shortage, error in short),
                *unfit,
                *((f"progress of job {job}", error) for job, error in progress),
            ],
            reading.now,
        )
        self._reports.settle()
        return results.unread

    def _save_progress(
        self, job_ids: Sequence[JobId], results: Collection, reading: Reading
    ) -> None:
        jobs = {job.id: job for job in reading.jobs}
        updates = []
        for job, record in self._store.newest_jobs(job_ids).items():
            program = results.programs.get(job, record.program)
            if program != record.program:
                self._store.save_program(workload_of(jobs[job]), program, reading.now)
            updates.append(
                replace(
                    record,
                    samples_done=results.samples_done[job],
                    restart_seconds=results.restart_seconds.get(job, record.restart_seconds),
                    program=program,
                    samples_planned=results.samples_planned.get(job, record.samples_planned),
                    saved=record.saved or results.saved.get(job, record.saved),
                    communication_timed=results.communication_timed.get(
                        job, record.communication_timed
                    ),
                    keeps_steps=results.keeps_steps.get(job, record.keeps_steps),
                    time_known=results.time_known.get(job, record.time_known),
                    answers_signal=results.answers_signal.get(job, record.answers_signal),
                )
            )
        self._store.save_jobs(updates)

    def _record_failures(self, failures: Sequence[tuple[str, Exception]], now: float) -> None:
        texts = [f"{item}: {describe_error(error)}" for item, error in failures[:MAX_EVENTS]]
        self._record("report_left_out", texts, now)

    def _record_refusals(self, refusals: Sequence[Refusal], now: float) -> None:
        """Count all refusals; only the first MAX_EVENTS become events."""
        self.refusal_count += len(refusals)
        texts = [*map(str, refusals[:MAX_EVENTS])]
        if len(refusals) > MAX_EVENTS:
            texts.append(f"and {len(refusals) - MAX_EVENTS} more in the same scan")
        self._record("report_refused", texts, now)

    def _record(self, kind: str, texts: Iterable[str], now: float) -> None:
        """Record events, at most :data:`MAX_EVENTS_PER_HOUR` an hour."""
        for text in texts:
            times = self._event_times
            if len(times) == times.maxlen and 0.0 <= now - times[0] < HOUR:
                return
            times.append(now)
            self._store.add_event(kind, text)

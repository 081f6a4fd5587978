"""Turns the credible reports of jobs into stored knowledge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hopsd.core.submission.workload import workload_of
from hopsd.learning.fits import Fits
from hopsd.learning.reader import Collected, Refused, ReportReader
from hopsd.model.ids import JobId
from hopsd.model.isolation import describe_error, find_failing_items
from hopsd.model.reading import Reading
from hopsd.store.history import History

MAX_EVENTS = 20
"""Events per scan for refused reports: any user may leave any number of files in the spool."""


class Learner:
    """Learns from reports; keeps state between scans. ``refused`` counts refused reports."""

    def __init__(self, store: History, folder: Path) -> None:
        self._store = store
        self._fits = Fits(store)
        self._reports = ReportReader(folder)
        self.refused = 0

    def use_folder(self, folder: Path) -> None:
        """Switch to the folder of a new configuration."""
        self._reports.close()
        self._reports = ReportReader(folder)

    def learn(self, reading: Reading, half_life_seconds: float) -> str:
        """Learn speeds, phases of iterations and progress of the jobs in ``reading``.

        Returns why the reports could not be read, "" if they could.
        A job's report that makes a step raise is left out and recorded as an event; learning from
        the other jobs continues.

        Raises:
            StoreUnavailableError: what was read is read again in the next scan.
        """
        collected = self._reports.collect(reading)
        _, speeds = find_failing_items(collected.records, self._store.add_throughput)
        _, phases = find_failing_items(collected.phases, self._fits.note)
        unfit = self._fits.renew(half_life_seconds, reading.now)
        _, short = find_failing_items(collected.shortages, self._store.save_shortages)
        _, progress = find_failing_items(
            tuple(collected.samples_done),
            lambda jobs: self._note_progress(jobs, collected, reading),
        )
        self._note_refused(collected.refused)
        self._note_left_out(
            [
                *((record.workload, error) for record, error in speeds),
                *((record.workload, error) for record, error in phases),
                *((found.workload, error) for found, error in short),
                *unfit,
                *((f"progress of job {job}", error) for job, error in progress),
            ]
        )
        self._reports.settle()
        return collected.unread

    def _note_progress(self, done: Sequence[JobId], collected: Collected, reading: Reading) -> None:
        jobs = {job.id: job for job in reading.jobs}
        changed = []
        for job, record in self._store.newest_jobs(done).items():
            program = collected.programs.get(job, record.program)
            if program != record.program:
                self._store.save_program(workload_of(jobs[job]), program, reading.now)
            changed.append(
                replace(
                    record,
                    samples_done=collected.samples_done[job],
                    restart_seconds=collected.restart_seconds.get(job, record.restart_seconds),
                    program=program,
                    samples_planned=collected.samples_planned.get(job, record.samples_planned),
                    saved=record.saved or collected.saved.get(job, record.saved),
                    communication_timed=collected.communication_timed.get(
                        job, record.communication_timed
                    ),
                )
            )
        self._store.save_jobs(changed)

    def _note_left_out(self, left: Sequence[tuple[str, Exception]]) -> None:
        for what, error in left[:MAX_EVENTS]:
            self._store.add_event("report_left_out", f"{what}: {describe_error(error)}")

    def _note_refused(self, refused: Sequence[Refused]) -> None:
        """Count all; of a flood only the first ones become events."""
        self.refused += len(refused)
        for each in refused[:MAX_EVENTS]:
            self._store.add_event("report_refused", str(each))
        if len(refused) > MAX_EVENTS:
            more = len(refused) - MAX_EVENTS
            self._store.add_event("report_refused", f"and {more} more at the same look")

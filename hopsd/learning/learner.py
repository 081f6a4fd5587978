"""From what jobs report to what is remembered of them, as far as it can be believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hopsd.core.submission.workload import workload_of
from hopsd.learning.fits import Fits
from hopsd.learning.reader import Collected, Refused, ReportReader
from hopsd.model.reading import Reading
from hopsd.store.history import History

MOST_TOLD = 20
"""Events of refused reports at one look: anybody may leave any number of files in the spool."""


class Learner:
    """Keeps what one look has to remember for the next. ``refused`` counts reports."""

    def __init__(self, store: History, folder: Path) -> None:
        self._store = store
        self._fits = Fits(store)
        self._reports = ReportReader(folder)
        self.refused = 0

    def use_folder(self, folder: Path) -> None:
        """Take a new configuration's."""
        self._reports = ReportReader(folder)

    def learn(self, reading: Reading, half_life_seconds: float) -> str:
        """Speeds, parts of iterations and progress of the jobs in ``reading``.

        Returns why the reports could not be read, nothing where they could.
        """
        collected = self._reports.collect(reading)
        if collected.records:
            self._store.add_throughput(collected.records)
        self._fits.note(collected.phases)
        self._fits.renew(half_life_seconds, reading.now)
        self._note_progress(collected, reading)
        self._note_refused(collected.refused)
        self._reports.settle()
        return collected.unread

    def _note_progress(self, collected: Collected, reading: Reading) -> None:
        jobs = {job.id: job for job in reading.jobs}
        changed = []
        for job, done in collected.samples_done.items():
            record = self._store.job(job)
            if record is None:
                continue
            program = collected.programs.get(job, record.program)
            if program != record.program:
                self._store.save_program(workload_of(jobs[job]), program, reading.now)
            changed.append(
                replace(
                    record,
                    samples_done=done,
                    restart_seconds=collected.restart_seconds.get(job, record.restart_seconds),
                    program=program,
                )
            )
        self._store.save_jobs(changed)

    def _note_refused(self, refused: Sequence[Refused]) -> None:
        """All count; of a flood the first ones are told."""
        self.refused += len(refused)
        for each in refused[:MOST_TOLD]:
            self._store.add_event("report_refused", str(each))
        if len(refused) > MOST_TOLD:
            more = len(refused) - MOST_TOLD
            self._store.add_event("report_refused", f"and {more} more at the same look")

"""Reads when running jobs save from their reports, at the moment when it matters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from hopsd.core.report.reports import Report, parse_report
from hopsd.errors import FormatError
from hopsd.learning.spool import MAX_LISTED, Spool, by_rank
from hopsd.model.reading import JobReading, SaveTimes

MAX_RANKS = 64
"""How many of a job's reports are read: the first ranks save."""


class SaveReader:
    """Reads the reports of a job's current run at each call."""

    def __init__(
        self,
        folder: Callable[[], Path],
        clock: Callable[[], float] = time.time,
        accepted_names: Callable[[str], Iterable[str]] = lambda _prefix: (),
    ) -> None:
        """``accepted_names`` returns the names with a prefix that a scan has accepted before, like
        :meth:`hopsd.learning.reader.ReportReader.accepted_names`. They are read first, since any
        user may fill the folder, even with names that look like this job's.
        """
        self._folder = folder
        self._clock = clock
        self._accepted_names = accepted_names

    def __call__(self, job: JobReading) -> SaveTimes | None:
        """The run's saves; None if no process reports any, or the reports cannot be read."""
        try:
            times = [_times(report) for report in self._reports(job)]
        except OSError:
            return None
        if not any(entry.saving or entry.at for entry in times):
            return None
        last = max(times, key=lambda entry: entry.at)
        return SaveTimes(any(entry.saving for entry in times), last.at, last.interval)

    def _reports(self, job: JobReading) -> Iterator[Report]:
        spool, prefix = Spool(self._folder()), f"{job.number or job.id}.{job.restarts}."
        names = dict.fromkeys(by_rank(self._accepted_names(prefix))[:MAX_RANKS])
        names |= dict.fromkeys(spool.names(prefix, MAX_LISTED)[:MAX_RANKS])
        for name in names:
            try:
                yield parse_report(spool.read_owned(name, job.uid), name, self._clock())
            except (FormatError, FileNotFoundError):  # another user's, or just replaced
                continue


def _times(report: Report) -> SaveTimes:
    return SaveTimes(report.saving and not report.final, report.saved_at or 0.0, report.save_every)

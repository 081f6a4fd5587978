"""Reads the jobs' reports in a separate thread, so that a file server that hangs stops no tick."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path

from hopsd.breaker import LastAnswers, call_in_background
from hopsd.learning.reader import Collection, ReportReader
from hopsd.model.ids import JobId
from hopsd.model.reading import JobReading, Reading, SaveTimes

WAIT_SECONDS = 1.0
"""How long a tick waits for a scan, or for a job's reports of its saves. A scan that takes longer
is used by the first tick after its end."""

SAVES_SECONDS = 3.0
"""How long ticks wait for the saves of all jobs that leave at once: a plan may stop hundreds, and a
slow file server may answer for each of them just in time."""


@dataclass(frozen=True, slots=True)
class _Scan:
    """A scan under way; a read from a file server that hangs cannot be interrupted."""

    reading: Reading
    results: Future[Collection]
    start: float = field(default_factory=time.monotonic)


class BackgroundReader:
    """A :class:`ReportReader` that scans in the background, one scan at a time. Each scan is waited
    for once, for at most :data:`WAIT_SECONDS`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reader = ReportReader(folder)
        self._scan: _Scan | None = None
        self._settle_thread: threading.Thread | None = None

    def collect(self, reading: Reading) -> tuple[Reading, Collection]:
        """As :meth:`ReportReader.collect`, with the reading that the scan was for. While the folder
        does not answer, ``unread`` says for how long.
        """
        scan, seconds = self._scan, 0.0
        if scan is None:
            scan, seconds = self._begin(reading), WAIT_SECONDS
        finished, _ = wait((scan.results,), seconds)
        if not finished:
            self._scan = scan
            silent = time.monotonic() - scan.start
            return reading, Collection(unread=f"{self._folder} has not answered for {silent:.0f} s")
        self._scan = None
        return scan.reading, scan.results.result()

    def _begin(self, reading: Reading) -> _Scan:
        """Start a scan, which waits until the last scan's files are removed."""
        removal = self._settle_thread

        def collect() -> Collection:
            if removal is not None:
                removal.join()
            return self._reader.collect(reading)

        return _Scan(reading, call_in_background(collect, "reports"))

    def accepted_names(self, prefix: str) -> list[str]:
        """See :meth:`ReportReader.accepted_names`."""
        return self._reader.accepted_names(prefix)

    def settle(self) -> None:
        """As :meth:`ReportReader.settle`, in the background, since it removes files. Does nothing
        during a scan, whose results are not stored yet.
        """
        if self._scan is None:
            self._settle_thread = threading.Thread(
                target=self._reader.settle, name="reports", daemon=True
            )
            self._settle_thread.start()

    def close(self) -> None:
        """Leave the folder at once; a scan that hangs there is abandoned."""
        if self._scan is None and (
            self._settle_thread is None or not self._settle_thread.is_alive()
        ):
            self._reader.close()


class BackgroundSaves:
    """A :class:`hopsd.learning.save_reader.SaveReader` that reads in the background: while a read
    hangs, the last known saves of the run are returned.
    """

    def __init__(self, read: Callable[[JobReading], SaveTimes | None]) -> None:
        self._read = read
        self._answers = LastAnswers[tuple[JobId, int], SaveTimes | None](
            WAIT_SECONDS, SAVES_SECONDS, share=0.3
        )

    def __call__(self, job: JobReading) -> SaveTimes | None:
        """The run's saves; None if no process reports any, or reports are unreadable or hang."""
        return self._answers.get((job.id, job.restarts), lambda: self._read(job))

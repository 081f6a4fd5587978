"""Reads the jobs' reports in a thread of its own: a file server that hangs stops no tick."""

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
"""So long a tick waits for a scan, or for what a job's reports say of its saves. A scan that takes
longer is used by the first tick after its end."""

SAVES_SECONDS = 3.0
"""So long ticks wait for the saves of all jobs that leave at once: a plan may stop hundreds, and a
file server that is slow answers each in time."""


@dataclass(frozen=True, slots=True)
class _Scan:
    """One scan under way; a read from a file server that hangs cannot be interrupted."""

    reading: Reading
    results: Future[Collection]
    start: float = field(default_factory=time.monotonic)


class BackgroundReader:
    """A :class:`ReportReader` whose scans end by themselves: one at a time, none is waited for
    longer than :data:`WAIT_SECONDS`, and not at all once it was.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reader = ReportReader(folder)
        self._scan: _Scan | None = None
        self._settle_thread: threading.Thread | None = None

    def collect(self, reading: Reading) -> tuple[Reading, Collection]:
        """As :meth:`ReportReader.collect`, with the reading that the scan was for. While the folder
        does not answer, ``unread`` says so and since when.
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
        """Once the files of the scan before are removed."""
        removal = self._settle_thread

        def collect() -> Collection:
            if removal is not None:
                removal.join()
            return self._reader.collect(reading)

        return _Scan(reading, call_in_background(collect, "reports"))

    def accepted_names(self, prefix: str) -> list[str]:
        """As :meth:`ReportReader.accepted_names`."""
        return self._reader.accepted_names(prefix)

    def settle(self) -> None:
        """As :meth:`ReportReader.settle`, in the background: files are removed. Nothing during a
        scan, whose results are not stored.
        """
        if self._scan is None:
            self._settle_thread = threading.Thread(
                target=self._reader.settle, name="reports", daemon=True
            )
            self._settle_thread.start()

    def close(self) -> None:
        """Leave the folder at once; a scan that hangs there is left to itself."""
        if self._scan is None and (
            self._settle_thread is None or not self._settle_thread.is_alive()
        ):
            self._reader.close()


class BackgroundSaves:
    """A :class:`hopsd.learning.save_reader.SaveReader` whose reads end by themselves: while one
    hangs, a run's saves are what was last known of them.
    """

    def __init__(self, read: Callable[[JobReading], SaveTimes | None]) -> None:
        self._read = read
        self._answers = LastAnswers[tuple[JobId, int], SaveTimes | None](
            WAIT_SECONDS, SAVES_SECONDS, share=0.3
        )

    def __call__(self, job: JobReading) -> SaveTimes | None:
        """None: no process of the run reports saves, its reports cannot be read, or hang."""
        return self._answers.get((job.id, job.restarts), lambda: self._read(job))

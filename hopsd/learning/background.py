"""Reads the jobs' reports in a thread of its own: a file server that hangs stops no tick."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from hopsd.breaker import LastAnswers
from hopsd.learning.reader import Collection, ReportReader
from hopsd.model.ids import JobId
from hopsd.model.reading import JobReading, Reading, SaveTimes

WAIT_SECONDS = 1.0
"""So long a tick waits for a scan, or for what a job's reports say of its saves. A scan that takes
longer is used by the first tick after its end."""

SAVES_SECONDS = 3.0
"""So long ticks wait for the saves of all jobs that leave at once: a plan may stop hundreds, and a
file server that is slow answers each in time."""


class _Scan:
    """One scan under way; a read from a file server that hangs cannot be interrupted."""

    def __init__(
        self, reader: ReportReader, reading: Reading, before: threading.Thread | None
    ) -> None:
        """``before``: what is to end first."""
        self.reading = reading
        self.begun = time.monotonic()
        self._done_event = threading.Event()
        self._result: Collection | Exception = Collection()

        def work() -> None:
            try:
                if before is not None:
                    before.join()
                self._result = reader.collect(reading)
            except Exception as error:  # raised where the result is asked for
                self._result = error
            self._done_event.set()

        threading.Thread(target=work, name="reports", daemon=True).start()

    def result(self, seconds: float) -> Collection | None:
        """What the scan found; None if it has not ended within ``seconds``."""
        if not self._done_event.wait(seconds):
            return None
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


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
        seconds = 0.0
        if self._scan is None:
            self._scan, seconds = _Scan(self._reader, reading, self._settle_thread), WAIT_SECONDS
        scan = self._scan
        try:
            results = scan.result(seconds)
        except Exception:
            self._scan = None
            raise
        if results is None:
            silent = time.monotonic() - scan.begun
            return reading, Collection(unread=f"{self._folder} has not answered for {silent:.0f} s")
        self._scan = None
        return scan.reading, results

    def accepted(self, prefix: str) -> list[str]:
        """As :meth:`ReportReader.accepted`."""
        return self._reader.accepted(prefix)

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

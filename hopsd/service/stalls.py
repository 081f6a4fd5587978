"""Starts a tick early when a training reports that it stalls.

The tick judges whether the training hangs. Otherwise half a minute may pass until the next one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path

from hopsd.core.report.reports import FILE_NAME
from hopsd.errors import FormatError
from hopsd.learning.spool import MAX_LISTED, Spool
from hopsd.service.background import in_thread

EVERY_SECONDS = 5.0

SHARE = 0.02
"""Reading takes at most this share of the time: 2,000 reports on a file server may take 1 s."""

_STALL_MARK = b'"stalled":true'
"""As `hops_profiler` writes it. A tick reads the report in full, and refuses an invalid one."""


class StallWatch:
    """Reads changed reports in a thread, so that a file server that hangs delays nothing."""

    def __init__(
        self,
        begin: Callable[[Callable[[], None]], None] = in_thread,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._begin, self._clock = begin, clock
        self._reports: dict[str, tuple[int, bool]] = {}
        """By file name: when the report was written, and whether it says that it stalls."""
        self._reading = self._stalled_anew = False
        self._next = float("-inf")

    def due(self, folder: Path) -> bool:
        """Whether a report newly says that its process stalls."""
        due, self._stalled_anew = self._stalled_anew, False
        if not self._reading and self._clock() >= self._next:
            self._reading = True
            self._begin(lambda: self._read(folder))
        return due

    def _read(self, folder: Path) -> None:
        began = self._clock()
        try:
            # The ticks report a folder that cannot be read.
            with suppress(OSError), os.scandir(folder) as entries:
                self._compare(Spool(folder), list(islice(entries, MAX_LISTED)))
        finally:
            self._next = self._clock() + max(EVERY_SECONDS, (self._clock() - began) / SHARE)
            self._reading = False

    def _compare(self, spool: Spool, entries: list[os.DirEntry[str]]) -> None:
        before, self._reports = self._reports, {}
        for entry in entries:
            if not FILE_NAME.fullmatch(entry.name):
                continue
            with suppress(OSError, FormatError):
                status = entry.stat(follow_symlinks=False)
                known_mtime, is_stalled = before.get(entry.name, (0, False))
                if status.st_mtime_ns != known_mtime:
                    was_stalled = is_stalled
                    is_stalled = _STALL_MARK in spool.read_owned(entry.name, status.st_uid)
                    self._stalled_anew |= is_stalled and not was_stalled
                self._reports[entry.name] = status.st_mtime_ns, is_stalled

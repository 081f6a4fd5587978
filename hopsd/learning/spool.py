"""The folder where jobs leave their reports: shared, world-writable, sticky.

Any user may put any number of files into it, so each scan lists a limited part and the next scan
continues there; known reports are read in every scan. Orphans, files that belong to no job, are
removed after ORPHAN_SECONDS, or reported if that fails.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from hopsd.core.report.reports import FILE_NAME, MAX_BYTES
from hopsd.errors import FormatError
from hopsd.model.ids import JobId

MAX_LISTED = 20_000
"""Maximum names read in one scan, which takes 25 ms."""

MAX_JUDGED = 2_000
"""Maximum orphans checked for removal in one scan."""

MAX_STUCK = 100_000
ORPHAN_SECONDS = 3600.0

FUTURE_SECONDS = 86_400.0
"""No file server's clock is a day ahead: such a file was dated to keep it from removal."""


class Spool:
    """Lists and cleans the folder, a part of it in each scan."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._listing: Iterator[os.DirEntry[str]] | None = None
        self._close: Callable[[], None] = lambda: None
        self._report_names: set[str] = set()
        self._stuck: set[str] = set()

    def look(self, jobs: Collection[JobId], now: float) -> tuple[list[str], list[str], str]:
        """Return the names of ``jobs``' reports in order, new orphans that cannot be removed, and
        why the folder cannot be read ("" if it can).
        """
        names, unread = self._next_names()
        # An orphan may be a write in progress, or of a job newer than the reading: give it time.
        orphans = [name for name in names if not _is_report_of(name, jobs)]
        self._report_names.update(set(names).difference(orphans))
        self._report_names = {name for name in self._report_names if _is_report_of(name, jobs)}
        unremovable = [name for name in orphans[:MAX_JUDGED] if not self._is_settled(name, now)]
        return sorted(self._report_names), unremovable, unread

    def names(self, prefix: str, limit: int) -> list[str]:
        """Return names with this prefix, in order of rank, among the folder's first ``limit``.

        Raises:
            OSError: the folder cannot be read.
        """
        with os.scandir(self.folder) as entries:
            names = [e.name for e in islice(entries, limit) if e.name.startswith(prefix)]
        return by_rank(filter(FILE_NAME.fullmatch, names))

    def close(self) -> None:
        """Close the descriptor of an unfinished listing."""
        self._close()
        self._listing = None

    def _next_names(self) -> tuple[list[str], str]:
        """List the next part of the folder; returns names, and why it is unreadable ("" if not)."""
        try:
            if self._listing is None:
                self._listing = listing = os.scandir(self.folder)
                self._close = listing.close
            names = [entry.name for entry in islice(self._listing, MAX_LISTED)]
        except OSError as error:
            self.close()
            self._report_names.clear()
            return [], f"{self.folder}: {error.strerror}"
        if len(names) < MAX_LISTED:
            self.close()
        return names, ""

    def _is_settled(self, name: str, now: float) -> bool:
        """Whether an orphan needs no report: it was removed or reported, or may stay for now."""
        if name in self._stuck:
            return True
        try:
            age = now - (self.folder / name).lstat().st_mtime
        except OSError:
            return True
        if -FUTURE_SECONDS <= age <= ORPHAN_SECONDS:
            return True
        return self.remove(name)

    def forget(self, name: str) -> None:
        """Drop a name that no longer exists."""
        self._report_names.discard(name)

    def remove(self, name: str) -> bool:
        """Remove a file or an empty folder; a failure is not retried."""
        self._report_names.discard(name)
        path = self.folder / name
        for remove_entry in (path.unlink, path.rmdir):
            with suppress(OSError):
                remove_entry()
                return True
        if len(self._stuck) >= MAX_STUCK:
            self._stuck.clear()
        self._stuck.add(name)
        return False

    def stuck(self, name: str) -> bool:
        """Whether an earlier removal failed."""
        return name in self._stuck

    def read_owned(self, name: str, uid: int) -> bytes:
        """Read a report, which must be a regular file with one link that ``uid`` owns.

        Raises:
            FormatError: it is not such a file, or too large for a report.
            OSError: it cannot be read; a symbolic link is not followed.
        """
        # O_NONBLOCK: opening a FIFO that a user put there must not block the daemon.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(self.folder / name, flags)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
                raise FormatError("not a regular file with one name")
            if status.st_uid != uid:
                raise FormatError(f"owner {status.st_uid} is not the job's user {uid}")
            data = _read_limited(descriptor)
        finally:
            os.close(descriptor)
        if len(data) > MAX_BYTES:
            raise FormatError(f"longer than {MAX_BYTES} bytes")
        return data


def _read_limited(descriptor: int) -> bytes:
    """Read at most one byte more than a report may have."""
    data = b""
    while len(data) <= MAX_BYTES and (part := os.read(descriptor, MAX_BYTES + 1 - len(data))):
        data += part
    return data


def by_rank(names: Iterable[str]) -> list[str]:
    """Sort names of reports by rank."""

    def rank(name: str) -> int:
        match = FILE_NAME.fullmatch(name)
        return int(match[4]) if match else 0

    return sorted(names, key=rank)


def _is_report_of(name: str, jobs: Collection[JobId]) -> bool:
    match = FILE_NAME.fullmatch(name)
    return match is not None and JobId(match[1]) in jobs

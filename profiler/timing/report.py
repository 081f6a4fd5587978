"""Writes reports: one small JSON file per process, replaced atomically.

With files, compute nodes need no password and no open port, nothing is lost while the daemon is
down, and a killed job leaves its last report behind.

Every user may create files in the folder but may not list it. File names cannot be guessed, so no
user can put a FIFO, a link or another file where a report will be written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

VERSION = 1

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def token() -> str:
    """The unguessable part of a process's file names."""
    return f"t{os.urandom(8).hex()}"


def file_name(job: str, run: int, node: str, rank: int, pid: int, suffix: str) -> str:
    """Cluster-wide unique name; ``suffix`` (a token) separates ranks 0 of a job's programs."""
    return f"{job}.{run}.{node}.{rank}.{pid}.{suffix}.json"


def write(folder: str, name: str, content: Mapping[str, object]) -> None:
    """Write a report atomically: readers see either the old or the new one.

    The file is readable by all, whatever the job's umask, so the daemon need not run as root.

    Raises:
        OSError: no such folder, no permission, or a full disk; no partial file remains.
    """
    text = json.dumps(content, separators=(",", ":"))
    partial = Path(folder, f".{token()}.partial")
    descriptor = os.open(partial, _NEW, 0o644)
    try:
        with os.fdopen(descriptor, "w") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(text)
        partial.replace(partial.with_name(name))
    except OSError:
        with suppress(OSError):
            partial.unlink()
        raise

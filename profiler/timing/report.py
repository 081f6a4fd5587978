"""A report on its way out: one small JSON file a process, replaced as a whole.

Compute nodes need no password and no port for it, a daemon that is down misses nothing, and a
killed job leaves its last report behind.

Every user may put files into the folder, and nobody lists it. So names cannot be guessed: what
lies at a name beforehand, be it a FIFO, a link or another user's file, was put there to be met.
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
    """What makes a process's file names its own."""
    return f"t{os.urandom(8).hex()}"


def file_name(job: str, run: int, node: str, rank: int, pid: int, own: str) -> str:
    """Unique on the cluster: two programs of one job may both be rank 0 of their own."""
    return f"{job}.{run}.{node}.{rank}.{pid}.{own}.json"


def write(folder: str, name: str, content: Mapping[str, object]) -> None:
    """Readers see the old or the new report, whatever happens in between.

    Readable by all, whatever the job's umask: the daemon need not run as root.

    Raises:
        OSError: no such folder, no right, disk full; nothing is left behind.
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

"""A report on its way out: one small JSON file a process, replaced as a whole.

Compute nodes need no password and no port for it, a daemon that is down misses nothing, and a
killed job leaves its last report behind.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

VERSION = 1


def file_name(job: str, run: int, node: str, rank: int, pid: int) -> str:
    """Unique on the cluster: two programs of one job may both be rank 0 of their own."""
    return f"{job}.{run}.{node}.{rank}.{pid}.json"


def write(folder: str, name: str, content: Mapping[str, object]) -> None:
    """Readers see the old or the new report, whatever happens in between.

    Readable by all, whatever the job's umask: the daemon need not run as root.

    Raises:
        OSError: no such folder, no right, disk full; nothing is left behind.
    """
    target = Path(folder, name)
    partial = target.with_name(f".{name}.partial")
    text = json.dumps(content, separators=(",", ":"))
    descriptor = os.open(
        partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644
    )
    try:
        with os.fdopen(descriptor, "w") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(text)
        partial.replace(target)
    except OSError:
        partial.unlink()
        raise

"""How much memory a process may take for files in it: of the machine, and of its Slurm job."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

SHARE = 0.5
"""Of what is free: the rest stays for the training, which may not have all its memory yet."""

_UNLIMITED = 2**60
"""A control group without a limit says "max", or in its first version a number near 2**63."""


def usable(folder: Path, root: Path = Path("/")) -> int:
    """Bytes that a file in ``folder``, which lies in memory, may have; ``root`` of proc and sys."""
    free = [shutil.disk_usage(folder).free, *_of_machine(root), *_of_groups(root)]
    return int(SHARE * min(free))


def _of_machine(root: Path) -> Iterator[int]:
    found = re.search(r"^MemAvailable: +(\d+) kB", _read(root / "proc/meminfo"), re.MULTILINE)
    if found:
        yield 1024 * int(found[1])


def _of_groups(root: Path) -> Iterator[int]:
    """What each of the control groups around this process leaves free (Slurm limits a job's)."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mount, limit, used = "sys/fs/cgroup", "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            mount = "sys/fs/cgroup/memory"
            limit, used = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        top = root / mount
        group = top / path.lstrip("/")
        while top in (group, *group.parents):
            most, now = _read(group / limit).strip(), _read(group / used).strip()
            if most.isdigit() and now.isdigit() and int(most) < _UNLIMITED:
                cached = re.search(r"^inactive_file (\d+)", _read(group / "memory.stat"), re.M)
                yield max(0, int(most) - int(now) + (int(cached[1]) if cached else 0))
            group = group.parent


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""

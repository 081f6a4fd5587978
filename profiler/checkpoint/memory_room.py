"""How much memory a process may use for files, by the machine's and its Slurm job's limits."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

SHARE = 0.5
"""Share of the free memory to use; the training may still need the rest."""

_NO_LIMIT = 2**60
"""Control groups without a limit have "max", or in cgroup v1 a number near 2**63."""


def usable(folder: Path, root: Path = Path("/")) -> int:
    """Bytes usable for a file in ``folder``, which is in memory. /proc and /sys are in ``root``."""
    free = [shutil.disk_usage(folder).free, *_machine_memory(root), *_cgroup_memory(root)]
    return int(SHARE * min(free))


def _machine_memory(root: Path) -> Iterator[int]:
    match = re.search(r"^MemAvailable: +(\d+) kB", _text(root / "proc/meminfo"), re.MULTILINE)
    if match:
        yield 1024 * int(match[1])


def _cgroup_memory(root: Path) -> Iterator[int]:
    """Yield the free memory of each control group around this process (Slurm limits a job's)."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mount, limit, usage = "sys/fs/cgroup", "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            mount = "sys/fs/cgroup/memory"
            limit, usage = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        top = root / mount
        group = top / path.lstrip("/")
        while top in (group, *group.parents):
            total, current = _text(group / limit).strip(), _text(group / usage).strip()
            if total.isdigit() and current.isdigit() and int(total) < _NO_LIMIT:
                cache = re.search(r"^inactive_file (\d+)", _text(group / "memory.stat"), re.M)
                yield max(0, int(total) - int(current) + (int(cache[1]) if cache else 0))
            group = group.parent


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""

"""Measures the activity of this process and its children: CPU time, bytes, waits for disk.

It is read from /proc; a missing entry counts as no activity.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

_MAX_PROCESSES = 256
_STDIN_READS = ("0 0x0 ", "63 0x0 ")
"""`read` from file descriptor 0, by its number on x86-64 and on aarch64 (proc(5), syscall)."""


def processor_seconds() -> float:
    """Return the CPU seconds of all threads of this process and its descendants, plus the time that
    their main threads were runnable, since a process starved on a busy machine is not stalled.

    Other threads' runnable time does not count: library threads that poll a hundred times per
    second, such as Gloo's, wait often.
    """
    return sum(map(_scheduled_seconds, _family()))


def bytes_moved() -> int:
    """Return the bytes that this process and its descendants have read and written."""
    return sum(map(_bytes, _family()))


def used_gpus() -> list[int]:
    """Return the numbers of GPUs on which this process holds memory. Other GPUs are not queried,
    which would create a context there.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return []
    return [d for d in range(torch.cuda.device_count()) if torch.cuda.memory_reserved(d)]


def gpus_in_use() -> int | None:
    """Return the number of GPUs that this process uses; None if it uses none."""
    return len(used_gpus()) or None


def waits_for_disk() -> bool:
    """Whether a thread of this process is in an uninterruptible wait, as for a file server."""
    for thread in _threads("self"):
        fields = _read_text(f"/proc/self/task/{thread}/stat").rpartition(")")[2].split()
        if fields[:1] == ["D"]:
            return True
    return False


def reads_terminal(thread: int) -> bool:
    """Whether the thread with native ID ``thread`` waits for terminal input."""
    return _read_text(f"/proc/self/task/{thread}/syscall").startswith(_STDIN_READS)


def _family() -> list[str]:
    """List this process and its descendants."""
    family = [str(os.getpid())]
    for member in family:
        if len(family) >= _MAX_PROCESSES:
            break
        for thread in _threads(member):
            family += _read_text(f"/proc/{member}/task/{thread}/children").split()
    return family[:_MAX_PROCESSES]


def _scheduled_seconds(process: str) -> float:
    total = 0
    for thread in _threads(process):
        runs, waits, *_ = [
            *_read_text(f"/proc/{process}/task/{thread}/schedstat").split(),
            "0",
            "0",
        ]
        total += int(runs) + (int(waits) if thread == process else 0)
    return total / 1e9


def _bytes(process: str) -> int:
    lines = _read_text(f"/proc/{process}/io").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("rchar:", "wchar:")))


def _threads(process: str) -> list[str]:
    with suppress(OSError):
        return [path.name for path in Path(f"/proc/{process}/task").iterdir()]
    return []


def _read_text(path: str) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return Path(path).read_text(encoding="ascii")
    return ""

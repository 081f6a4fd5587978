"""A file system that never answers, like that of a dead file server."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MNT_DETACH = 2


@contextmanager
def hanging_file_system(folder: Path) -> Iterator[bool]:
    """Mount a FUSE file system without a server over ``folder``; yield False if not permitted."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        server = os.open("/dev/fuse", os.O_RDWR)
    except OSError:
        yield False
        return
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
    is_mounted = libc.mount(b"hangs", bytes(folder), b"fuse", 0, options) == 0
    try:
        yield is_mounted
    finally:
        os.close(server)  # aborts pending requests
        if is_mounted:
            libc.umount2(bytes(folder), _MNT_DETACH)

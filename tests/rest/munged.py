"""A munged for each test."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from signal import SIGTERM

from fixtures_cluster import wait_until

from examples.demo.slurm_conf import find_program

DAEMON = find_program("munged")


@contextmanager
def run_munged(folder: Path, key: bytes) -> Iterator[str]:
    """Run munged and yield its socket; ``folder`` is new, and every user may enter it."""
    assert DAEMON is not None
    folder.mkdir(mode=0o755)
    (folder / "key").touch(mode=0o600)
    (folder / "key").write_bytes(key)
    socket, pid = folder / "socket", folder / "pid"
    subprocess.run(
        [DAEMON, "--force", f"--key-file={folder}/key", f"--socket={socket}", f"--pid-file={pid}",
         f"--log-file={folder}/log", f"--seed-file={folder}/seed"],
        check=True,
    )  # fmt: skip
    wait_until(lambda: pid.exists() and bool(pid.read_text().strip()))
    try:
        yield str(socket)
    finally:
        with suppress(ProcessLookupError):
            os.kill(int(pid.read_text()), SIGTERM)
        wait_until(lambda: not pid.exists())

"""Run a daemon on a private cluster, for live tests of what it detects."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fixtures_cluster import wait_until

from examples.demo.cluster import PrivateCluster

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent

Ask = Callable[..., Any]


@contextmanager
def hopsd(cluster: PrivateCluster, folder: Path, database: str, settings: str) -> Iterator[Ask]:
    """Run a daemon, and yield a function that runs hopsctl and returns its JSON output.

    ``settings`` are lines of hopsd.toml, the first of them in the section ``[daemon]``.
    """
    config, socket = folder / "hopsd.toml", folder / "hopsd.sock"
    config.write_text(
        f'[daemon]\nsocket = "{socket}"\n{settings}\n[database]\ndsn = "{database}"\n'
    )

    def ask(*command: str) -> Any:
        result = subprocess.run(
            [BIN / "hopsctl", *command, "--socket", socket, "--json"],
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(result.stdout)

    with (
        (folder / "hopsd.log").open("ab") as log,
        subprocess.Popen(
            [BIN / "hopsd", "--config", config], env=os.environ | cluster.env, stderr=log
        ) as daemon,
    ):
        try:
            wait_until(socket.exists, 60.0)
            yield ask
        finally:
            daemon.terminate()


def submit(cluster: PrivateCluster, folder: Path, comment: str, command: str, *options: str) -> str:
    """Submit a job that runs in ``folder``, and return its number."""
    result = subprocess.run(
        [
            *("sbatch", "--parsable", f"--comment={comment}", f"--chdir={folder}", *options),
            f"--wrap={command}",
        ],
        env=os.environ | cluster.env | {"OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    return result.stdout.strip()

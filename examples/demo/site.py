"""A private cluster with a database and hopsd, which end with the process that started them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from examples.demo.cluster import NodeSpec, PrivateCluster, on_real_gpus
from examples.demo.packages import ensure_slurm
from hopsd.ctl.daemon_client import ask
from hopsd.ctl.render import console
from hopsd.errors import UnreachableError
from hopsd.store.embedded import EmbeddedPostgres

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(sys.executable).parent
"""Folder of hopsctl and hopsd."""


START_SECONDS = 90.0
"""Time that hopsd may need to start on a busy machine."""


MARKER = ".hops-demo"
"""A file that marks folders that a demo may empty."""


class DemoError(Exception):
    """The demo cannot continue; the message says what to do."""


class Site:
    """A site with ``out``, a folder for results that is emptied first, and ``work``, a temporary
    one.

    Closing ``stack`` stops everything and removes ``work``.

    Raises:
            DemoError: ``out`` has files that were not written by a demo.
    """

    def __init__(self, stack: contextlib.ExitStack, out: Path) -> None:
        self._stack = stack
        self.out = out
        if out.exists() and any(out.iterdir()) and not (out / MARKER).exists():
            raise DemoError(f"{out} has files that no demo wrote: name an empty folder")
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        (out / MARKER).touch()
        self.work = Path(tempfile.mkdtemp(prefix="hops-demo-"))
        self.work.chmod(0o755)
        stack.callback(shutil.rmtree, self.work, ignore_errors=True)
        self.socket = self.work / "hopsd.sock"
        self.config = out / "hopsd.toml"

    def start(self, nodes: Sequence[NodeSpec], round_seconds: int, refresh_seconds: int) -> None:
        """Start cluster, database and daemon."""
        gpus = sum(node.gpus for node in nodes)
        say(f"a private Slurm cluster of {len(nodes)} nodes with {gpus} GPUs")
        ensure_slurm()
        reports = self.work / "reports"
        reports.mkdir()
        reports.chmod(0o1733)
        profiler = self.work / "profiler"
        shutil.copytree(ROOT / "profiler", profiler, ignore=shutil.ignore_patterns("__pycache__"))
        self.cluster = self._stack.enter_context(
            PrivateCluster(
                self.work / "cluster",
                nodes=on_real_gpus(nodes),
                report_dir=reports,
                profiler_path=profiler / "site",
                extra_conf=["JobFileAppend=1"],  # as `hopsctl setup` proposes it
            )
        )
        say("an embedded PostgreSQL")
        postgres = self._stack.enter_context(EmbeddedPostgres())
        template = (ROOT / "conf" / "demo.toml").read_text()
        self.config.write_text(
            template.format(
                socket=self.socket,
                dsn=postgres.dsn(),
                report_dir=reports,
                round_seconds=round_seconds,
                refresh_seconds=refresh_seconds,
            )
        )
        say(f"hopsd, with rounds of {round_seconds} seconds")
        self._run_hopsd()

    @property
    def env(self) -> dict[str, str]:
        """Environment in which Slurm commands and hopsctl reach this site and no other."""
        return {**os.environ, **self.cluster.env, "HOPS_SOCKET": str(self.socket)}

    def _run_hopsd(self) -> None:
        subprocess.run(
            [PROGRAMS / "hopsctl", "migrate", "--config", self.config],
            env=self.env, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        log = self._stack.enter_context((self.out / "hopsd.log").open("w"))
        self.hopsd = subprocess.Popen(
            [PROGRAMS / "hopsd", "--config", self.config],
            env=self.env, stderr=log, start_new_session=True,
        )  # fmt: skip
        self._stack.callback(stop, self.hopsd)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(UnreachableError):
                if ask(self.socket, "status")["mode"] == "active":
                    return
            if self.hopsd.poll() is not None:
                break
            time.sleep(0.2)
        raise DemoError(f"hopsd did not start; see {self.out / 'hopsd.log'}")


def say(text: str) -> None:
    """Print one line about the current step."""
    console.print(f"[bold]demo:[/bold] {text}", highlight=False, soft_wrap=True)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM, then SIGKILL if that does not suffice."""
    process.terminate()
    try:
        process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

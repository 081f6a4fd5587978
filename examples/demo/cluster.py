"""A private, real Slurm cluster of several nodes on this one machine.

Used by the demo, the tests and the benchmarks. Everything (configuration, ports, munge key,
sockets, state, logs) lives in one folder; an existing Slurm on the machine is neither read nor
touched. Works as root, or as an ordinary user who then owns all jobs. Several of Debian's slurmd
run on one host, each with its own node name (``-N``).
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from examples.demo.slurm_conf import (
    DEFAULT_NODES,
    PLUGIN,
    REQUEUE_EXIT_CODE,
    ClusterFiles,
    NodeSpec,
    find_program,
    on_real_gpus,
    slurm_release,
)
from hopsd.model.reading import JobReading
from hopsd.slurm.command import SlurmCommands
from hopsd.slurm.scontrol import ScontrolAdapter

__all__ = [
    "DEFAULT_NODES",
    "PACKAGES",
    "PLUGIN",
    "REQUEUE_EXIT_CODE",
    "ClusterError",
    "NodeSpec",
    "PrivateCluster",
    "free_ports",
    "missing_programs",
    "on_real_gpus",
    "slurm_release",
]

PACKAGES = ("munge", "slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel")
STOP_SECONDS = 10.0
READY_SECONDS = 90.0
"""Time that six slurmd may need to start on a busy machine."""


class ClusterError(Exception):
    """The cluster cannot run; the message gives the reason, with the log's last lines."""


def missing_programs() -> list[str]:
    return [name for name in PROGRAMS if find_program(name) is None]


class PrivateCluster:
    """A context manager that starts the cluster and stops it at the end, also after errors.

    Nodes are named n0, n1, ... in the order of ``nodes``. The hops plugin is installed as an
    administrator would: ``job_submit.lua`` beside slurm.conf, where prolog, task prolog and epilog
    are set; they have a ``site.sh`` that sets ``report_dir``, ``profiler_path`` and ``state_dir``
    (HOPS_STATE_DIR, used only if on another file system than the checkpoints). ``plugin`` False
    leaves all of this out; ``job_submit_lua`` installs another submit script. ``extra_conf`` adds
    lines to slurm.conf; a line that sets a key again replaces the cluster's own. ``extra_files``
    are further files beside it, by name. ``hollow``: no slurmd runs; whoever starts the cluster
    then starts a program that answers at ``node_port`` for all nodes.
    """

    def __init__(
        self,
        directory: Path | str,
        *,
        nodes: Sequence[NodeSpec] = DEFAULT_NODES,
        extra_conf: Sequence[str] = (),
        plugin: bool = True,
        job_submit_lua: Path | None = None,
        report_dir: Path | None = None,
        state_dir: Path | None = None,
        profiler_path: Path | None = None,
        extra_files: Mapping[str, str] | None = None,
        hollow: bool = False,
    ) -> None:
        self.directory = Path(directory).resolve()
        self.nodes = {f"n{at}": node for at, node in enumerate(nodes)}
        self._files = ClusterFiles(
            self.directory,
            self.nodes,
            ports=free_ports(2 if hollow else len(nodes) + 1),
            extra_conf=extra_conf,
            plugin=plugin,
            job_submit_lua=job_submit_lua or (PLUGIN / "job_submit.lua" if plugin else None),
            report_dir=report_dir,
            state_dir=state_dir,
            profiler_path=profiler_path,
            extra_files=extra_files or {},
            hollow=hollow,
        )
        self.controller_port, self.node_port = self._files.ports[:2]
        self._slurmds = () if hollow else tuple(self.nodes)
        self.conf = self._files.conf
        self.state_dir = state_dir

    @property
    def env(self) -> dict[str, str]:
        """Environment in which Slurm commands reach this cluster and no other."""
        return {"SLURM_CONF": str(self.conf)}

    def commands(self, timeout_seconds: float = 30.0) -> SlurmCommands:
        return SlurmCommands(timeout_seconds, environment=self.env)

    def run(self, *arguments: str) -> str:
        """Run a Slurm command on this cluster and return its standard output."""
        return self.commands().run(*arguments)

    def read_jobs(self) -> Sequence[JobReading]:
        return ScontrolAdapter(self.commands()).read().jobs

    def __enter__(self) -> PrivateCluster:
        missing = missing_programs()
        if missing:
            raise ClusterError(
                f"not found: {', '.join(missing)}; on Debian and Ubuntu install them with"
                f" apt-get install --no-install-recommends {' '.join(PACKAGES)}"
            )
        try:
            self._files.write()
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _start(self) -> None:
        self._launch(
            "munged",
            "--force",
            f"--key-file={self.directory}/munge.key",
            f"--socket={self.directory}/munge.sock",
            f"--pid-file={self.directory}/munge.pid",
            f"--log-file={self.directory}/log/munged.log",
            f"--seed-file={self.directory}/munge.seed",
        )
        self.start_slurmctld(clean=True)
        for node in self._slurmds:
            self.start_slurmd(node)
        if self._slurmds:
            self.wait_for_nodes()

    def start_slurmctld(self, *, clean: bool = False) -> None:
        """Start slurmctld and return when it listens; ``clean`` makes it forget all jobs."""
        self._launch("slurmctld", *(["-c"] if clean else []))
        # slurmctld daemonizes before it detects errors.
        port = self.controller_port
        _wait_until(lambda: _listens(port) or not self._lives("slurmctld"), READY_SECONDS)
        if not _listens(port):
            raise ClusterError(f"slurmctld did not start\n{self._log_tail()}")

    def stop_slurmctld(self, signal_number: signal.Signals = signal.SIGTERM) -> None:
        """Stop slurmctld and wait until it has exited; SIGKILL imitates a crash."""
        self._stop("slurmctld", signal_number)

    def start_slurmd(self, node: str, *, fresh_boot: bool = False) -> None:
        """Start a slurmd; with ``fresh_boot`` it reports that it booted just now."""
        self._launch("slurmd", "-N", node, *(["-b"] if fresh_boot else []))

    def stop_slurmd(self, node: str, signal_number: signal.Signals = signal.SIGTERM) -> None:
        self._stop(f"slurmd.{node}", signal_number)

    def wait_for_nodes(self) -> None:
        """Wait until every node is ready for jobs."""

        def ready() -> bool:
            with contextlib.suppress(Exception):
                lines = self.run("sinfo", "--noheader", "--Node", "--format=%N=%T").split()
                states = dict(
                    line.split("=") for line in lines
                )  # a node is listed once per partition
                return len(states) == len(self.nodes) and set(states.values()) <= {
                    "idle",
                    "mixed",
                    "allocated",
                    "completing",
                }
            return False

        if not _wait_until(lambda: ready() or not self._lives("slurmctld"), READY_SECONDS):
            raise ClusterError(f"nodes are not ready after {READY_SECONDS:g} s\n{self._log_tail()}")
        if not self._lives("slurmctld"):  # 24.11 listens before it reads all of its configuration
            raise ClusterError(f"slurmctld did not start\n{self._log_tail()}")

    def stop(self) -> None:
        """Stop jobs, then daemons, then leftover processes of jobs."""
        if self.pid("slurmctld"):
            with contextlib.suppress(Exception):
                quick = self.commands(timeout_seconds=5.0)
                ids = quick.run("squeue", "--all", "--noheader", "--format=%A").split()
                if ids:
                    quick.run("scancel", *ids)
                    _wait_until(
                        lambda: not quick.run("squeue", "--all", "--noheader"), STOP_SECONDS
                    )
        for name in ("slurmctld", *(f"slurmd.{node}" for node in self._slurmds), "munge"):
            self._stop(name, signal.SIGTERM)
        for pid in self._leftovers():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def _launch(self, program: str, *arguments: str) -> None:
        path = find_program(program)
        assert path is not None
        process = subprocess.run(
            [path, *arguments],
            env={**os.environ, **self.env, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        if process.returncode:
            message = process.stderr.strip() or process.stdout.strip()
            raise ClusterError(f"{program} did not start: {message}\n{self._log_tail()}")

    def pid(self, name: str) -> int | None:
        """The daemon's process ID; None without a PID file or if the process is not ours."""
        try:
            pid = int((self.directory / f"{name}.pid").read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        program = name.partition(".")[0]
        return pid if program.encode() in command else None

    def _stop(self, name: str, signal_number: signal.Signals) -> None:
        pid = self.pid(name)
        if pid is None:
            return
        os.kill(pid, signal_number)
        if not _wait_until(lambda: not _alive(pid), STOP_SECONDS):
            os.kill(pid, signal.SIGKILL)
            _wait_until(lambda: not _alive(pid), STOP_SECONDS)

    def _lives(self, program: str) -> bool:
        for path, _ in self._processes():
            with contextlib.suppress(OSError):
                if (path / "comm").read_text().strip() == program:
                    return True
        return False

    def _leftovers(self) -> Iterator[int]:
        """Yield the processes of this cluster's jobs."""
        for path, words in self._processes():
            if any(w.startswith(b"SLURM_JOB_ID=") for w in words):
                yield int(path.name)

    def _processes(self) -> Iterator[tuple[Path, list[bytes]]]:
        """Yield the processes with this cluster in their environment, and that environment."""
        entry = f"SLURM_CONF={self.conf}".encode()
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (path / "environ").read_bytes().split(b"\0")
                if entry in words:
                    yield path, words

    def _log_tail(self) -> str:
        lines = []
        for path in sorted((self.directory / "log").glob("*.log")):
            last = path.read_text(errors="replace").splitlines()[-3:]
            lines += [f"{path.name}: {line}" for line in last]
        return "\n".join(lines)


def free_ports(count: int) -> list[int]:
    """Find distinct free ports: bind all at once, then release them for Slurm."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in sockets:
            sock.bind(("", 0))
        return [sock.getsockname()[1] for sock in sockets]


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("localhost", port), timeout=1.0):
        return True
    return False


def _alive(pid: int) -> bool:
    """Whether any thread lives: the first may be dead while others still hold sockets."""
    with contextlib.suppress(OSError):
        threads = Path(f"/proc/{pid}/task").iterdir()
        return any(") Z " not in (thread / "stat").read_text() for thread in threads)
    return False


def _wait_until(holds: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True

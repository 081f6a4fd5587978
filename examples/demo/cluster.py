"""A private, real Slurm cluster of several nodes on this one machine.

Used by the demo, the tests and the benchmarks. Everything (configuration, ports, munge key,
sockets, state, logs) lives in one folder, and a Slurm that is already on the machine is neither
read nor touched. Works as root and as one ordinary user: then all jobs are that user's. Debian's
slurmd runs many times on one host, each with a node name of its own (``-N``).
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from hopsd.model.reading import JobReading
from hopsd.slurm.command import SlurmCommands
from hopsd.slurm.scontrol import ScontrolAdapter

PACKAGES = ("munge", "slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel")
PLUGIN = Path(__file__).resolve().parents[2] / "slurm_plugin"
STOP_SECONDS = 10.0
REQUEUE_EXIT_CODE = 85


class ClusterError(Exception):
    """The cluster cannot run; the message says why, with the log's last lines."""


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One node. ``devices``: real GPUs' files such as /dev/nvidia0; without, GPUs are made up.

    Made-up GPUs are links to /dev/null: slurmd wants character devices, and looks through links.
    """

    gpu_type: str
    gpus: int = 8
    cpus: int = 32
    devices: tuple[str, ...] = ()


DEFAULT_NODES = (NodeSpec("rtx3090"),) * 4 + (NodeSpec("v100", gpus=4),) * 2


def missing_programs() -> list[str]:
    return [name for name in PROGRAMS if _program(name) is None]


def on_real_gpus(nodes: Sequence[NodeSpec]) -> list[NodeSpec]:
    """The same nodes, the first one with the machine's own GPUs where these fill it.

    Only the first: Slurm numbers CUDA_VISIBLE_DEVICES within a node, from 0 (22.05), so on a
    second node of the same machine 0 would be the first node's GPU again.
    """
    first, *others = nodes
    real = tuple(f"/dev/nvidia{at}" for at in range(first.gpus))
    if not all(Path(path).exists() for path in real):
        return list(nodes)
    return [replace(first, devices=real), *others]


class PrivateCluster:
    """Starts on ``with``, and stops whatever it started at the end, after errors too.

    Nodes are named n0, n1, ... in the order of ``nodes``. The hops plugin is installed as an
    administrator would: ``job_submit.lua`` beside slurm.conf, prolog, task prolog and epilog
    named there, with a ``site.sh`` of their own that has ``report_dir`` and ``profiler_path``.
    ``plugin`` False leaves it all out; ``job_submit_lua`` puts another submit script in.
    ``extra_conf``: lines of slurm.conf; one that sets a key again replaces the cluster's own.
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
        profiler_path: Path | None = None,
    ) -> None:
        self.directory = Path(directory).resolve()
        self.nodes = {f"n{at}": node for at, node in enumerate(nodes)}
        self.conf = self.directory / "slurm.conf"
        self._extra_conf = extra_conf
        self._plugin = plugin
        self._job_submit_lua = job_submit_lua or (PLUGIN / "job_submit.lua" if plugin else None)
        self._report_dir = report_dir
        self._profiler_path = profiler_path
        self._ports = _free_ports(len(nodes) + 1)

    @property
    def env(self) -> dict[str, str]:
        """What sbatch, squeue and the others need to reach this cluster and no other."""
        return {"SLURM_CONF": str(self.conf)}

    def commands(self, timeout_seconds: float = 30.0) -> SlurmCommands:
        return SlurmCommands(timeout_seconds, environment=self.env)

    def run(self, *arguments: str) -> str:
        """Standard output of a Slurm command on this cluster."""
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
            self._write()
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
        for node in self.nodes:
            self.start_slurmd(node)
        self.wait_for_nodes()

    def start_slurmctld(self, *, clean: bool = False) -> None:
        """``clean`` forgets all jobs. Returns when it listens."""
        self._launch("slurmctld", *(["-c"] if clean else []))
        # Newer ones go to the background before they find out what is wrong (26.05).
        if not _until(lambda: _listens(self._ports[0]), STOP_SECONDS):
            raise ClusterError(f"slurmctld did not start\n{self._log_tail()}")

    def stop_slurmctld(self, how: signal.Signals = signal.SIGTERM) -> None:
        """SIGKILL: as a crash would. Returns when the process is gone."""
        self._stop("slurmctld", how)

    def start_slurmd(self, node: str) -> None:
        self._launch("slurmd", "-N", node)

    def stop_slurmd(self, node: str, how: signal.Signals = signal.SIGTERM) -> None:
        self._stop(f"slurmd.{node}", how)

    def wait_for_nodes(self, seconds: float = 30.0) -> None:
        """Until every node is ready for jobs."""

        def ready() -> bool:
            with contextlib.suppress(Exception):
                states = self.run("sinfo", "--noheader", "--Node", "--format=%T").split()
                return len(states) == len(self.nodes) and set(states) <= {
                    "idle",
                    "mixed",
                    "allocated",
                    "completing",
                }
            return False

        if not _until(ready, seconds):
            raise ClusterError(f"nodes are not ready after {seconds:g} s\n{self._log_tail()}")

    def stop(self) -> None:
        """Jobs first, then the daemons, then whatever a job left behind."""
        if self._pid("slurmctld"):
            with contextlib.suppress(Exception):
                quick = self.commands(timeout_seconds=5.0)
                ids = quick.run("squeue", "--all", "--noheader", "--format=%A").split()
                if ids:
                    quick.run("scancel", *ids)
                    _until(lambda: not quick.run("squeue", "--all", "--noheader"), STOP_SECONDS)
        for name in ("slurmctld", *(f"slurmd.{node}" for node in self.nodes), "munge"):
            self._stop(name, signal.SIGTERM)
        for pid in self._leftovers():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def _launch(self, program: str, *arguments: str) -> None:
        path = _program(program)
        assert path is not None
        done = subprocess.run(
            [path, *arguments],
            env={**os.environ, **self.env, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        if done.returncode:
            said = done.stderr.strip() or done.stdout.strip()
            raise ClusterError(f"{program} did not start: {said}\n{self._log_tail()}")

    def _pid(self, name: str) -> int | None:
        """The daemon's process id, if its pid file tells and the process is still ours."""
        try:
            pid = int((self.directory / f"{name}.pid").read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        program = name.partition(".")[0]
        return pid if program.encode() in command else None

    def _stop(self, name: str, how: signal.Signals) -> None:
        pid = self._pid(name)
        if pid is None:
            return
        os.kill(pid, how)
        if not _until(lambda: not _alive(pid), STOP_SECONDS):
            os.kill(pid, signal.SIGKILL)
            _until(lambda: not _alive(pid), STOP_SECONDS)

    def _leftovers(self) -> Iterator[int]:
        """Processes of this cluster's jobs: both the cluster and a job are in their environment."""
        mine = f"SLURM_CONF={self.conf}".encode()
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (path / "environ").read_bytes().split(b"\0")
                if mine in words and any(w.startswith(b"SLURM_JOB_ID=") for w in words):
                    yield int(path.name)

    def _log_tail(self) -> str:
        lines = []
        for path in sorted((self.directory / "log").glob("*.log")):
            last = path.read_text(errors="replace").splitlines()[-3:]
            lines += [f"{path.name}: {line}" for line in last]
        return "\n".join(lines)

    def _write(self) -> None:
        for name in ("log", "state", "dev", *(f"spool/{node}" for node in self.nodes)):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o755)
        key = self.directory / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))
        for at in range(max(node.gpus for node in self.nodes.values())):
            link = self.directory / "dev" / f"gpu{at}"
            link.unlink(missing_ok=True)
            link.symlink_to("/dev/null")
        if slurm_release() >= (23, 2):
            # Without it slurmd needs a cgroup file system; 22.05's slurmd ends on this word.
            (self.directory / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        (self.directory / "gres.conf").write_text(self._gres_conf())
        settings = self._settings()
        if self._job_submit_lua is not None:
            shutil.copyfile(self._job_submit_lua, self.directory / "job_submit.lua")
            settings["JobSubmitPlugins"] = "lua"
        if self._plugin:
            settings |= self._install_prologs()
        for line in self._extra_conf:
            name, _, value = line.partition("=")
            settings[name] = value
        lines = [f"{name}={value}" for name, value in settings.items()]
        self.conf.write_text("\n".join([*lines, *self._node_lines(), ""]))

    def _install_prologs(self) -> dict[str, str]:
        folder = self.directory / "plugin"
        shutil.copytree(PLUGIN, folder, dirs_exist_ok=True)
        site = {
            "HOPS_RUN_DIR": self.directory / "run",
            "HOPS_REPORT_DIR": self._report_dir or "",
            "HOPS_PROFILER_PATH": self._profiler_path or "",
            "HOPS_REQUEUE_EXIT_CODE": REQUEUE_EXIT_CODE,
            "HOPS_SCONTROL": _program("scontrol"),
        }
        lines = [f"{name}={shlex.quote(str(value))}" for name, value in site.items()]
        # Slurm runs prologs without the environment that names this cluster.
        lines.append(f"export SLURM_CONF={shlex.quote(str(self.conf))}")
        (folder / "site.sh").write_text("\n".join([*lines, ""]))
        scripts = {"Prolog": "prolog", "TaskProlog": "task_prolog", "Epilog": "epilog"}
        for name in scripts.values():
            (folder / f"{name}.sh").chmod(0o755)
        return {key: str(folder / f"{name}.sh") for key, name in scripts.items()}

    def _settings(self) -> dict[str, str]:
        here = self.directory
        user = pwd.getpwuid(os.geteuid()).pw_name
        return {
            "ClusterName": "hops",
            "SlurmctldHost": "localhost",
            "SlurmctldPort": str(self._ports[0]),
            "SlurmUser": user,
            "SlurmdUser": user,
            "AuthType": "auth/munge",
            "CredType": "cred/munge",
            "AuthInfo": f"socket={here}/munge.sock",
            "StateSaveLocation": f"{here}/state",
            "SlurmdSpoolDir": f"{here}/spool/%n",
            "SlurmctldPidFile": f"{here}/slurmctld.pid",
            "SlurmdPidFile": f"{here}/slurmd.%n.pid",
            "SlurmctldLogFile": f"{here}/log/slurmctld.log",
            "SlurmdLogFile": f"{here}/log/slurmd.%n.log",
            "SlurmdParameters": "config_overrides",
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "MpiDefault": "none",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core",
            "GresTypes": "gpu",
            "SchedulerType": "sched/builtin",
            "SchedulerParameters": "batch_sched_delay=0,sched_interval=5",
            "PriorityType": "priority/basic",
            "ReturnToService": "2",
            "SlurmctldTimeout": "60",
            "SlurmdTimeout": "60",
            "KillWait": "2",
            "JobRequeue": "1",
            "RequeueExitHold": str(REQUEUE_EXIT_CODE),
        }

    def _node_lines(self) -> list[str]:
        lines = [
            f"NodeName={name} NodeHostname=localhost Port={port} CPUs={node.cpus} Boards=1"
            f" SocketsPerBoard=1 CoresPerSocket={node.cpus} ThreadsPerCore=1 RealMemory=64000"
            f" Gres=gpu:{node.gpu_type}:{node.gpus} State=UNKNOWN"
            for (name, node), port in zip(self.nodes.items(), self._ports[1:], strict=True)
        ]
        return [*lines, "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP"]

    def _gres_conf(self) -> str:
        lines = ["AutoDetect=off"]
        for name, node in self.nodes.items():
            made_up = [f"{self.directory}/dev/gpu[0-{node.gpus - 1}]"]
            for path in node.devices or made_up:
                lines.append(f"NodeName={name} Name=gpu Type={node.gpu_type} File={path}")
        return "\n".join([*lines, ""])


def slurm_release() -> tuple[int, int]:
    """Year and month of the installed Slurm, as (22, 5)."""
    path = _program("slurmctld")
    assert path is not None
    said = subprocess.run([path, "-V"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+)\.(\d+)", said)
    if found is None:
        raise ClusterError(f"slurmctld -V says {said.strip()!r}, which names no release")
    return int(found[1]), int(found[2])


def _program(name: str) -> str | None:
    """Daemons are in /usr/sbin, which an ordinary user's PATH may lack."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")


def _free_ports(count: int) -> list[int]:
    """Bound together, so that they differ; free again when Slurm takes them."""
    with contextlib.ExitStack() as stack:
        bound = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in bound:
            one.bind(("", 0))
        return [one.getsockname()[1] for one in bound]


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("localhost", port), timeout=1.0):
        return True
    return False


def _alive(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def _until(holds: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True

"""Test bed: a cluster, a database, two hopsd, and jobs that record their own runs."""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.demo.cluster import ClusterError, NodeSpec, PrivateCluster
from examples.demo.slurmdbd import SlurmdbdCluster, missing_slurmdbd
from hopsd.ctl.daemon_client import ask
from hopsd.errors import HopsError
from hopsd.store.embedded import EmbeddedPostgres
from hopsd.store.migrate import migrate

NODES = (NodeSpec("rtx3090", gpus=4, cpus=16),) * 3 + (NodeSpec("v100", gpus=2, cpus=16),) * 2
NOBODY_UID = 65534
COMMAND_SECONDS = 8.0
ASK_SECONDS = 3.0
HALTED_STATES = ("PENDING", "SUSPENDED")
FOLDER = Path(__file__).parent
LOG_DISK = "hopsd-log"
DISKS = {"database": 300, "state": 300, "run": 4, LOG_DISK: 64}
"""Sizes in MiB of the file systems that faults fill."""
EPILOG_SECONDS = 100
SLOW_EPILOG = "slow-epilog"
STUBBORN = ("stubborn", 120)
KINDS = ("saver",) * 7 + ("plain", "deaf", "broken")
REQS = ("1", "1,2", "1,2,4", "2,4", "1-6;num=3", "3", "6", "1;preempt=no")


@dataclass(slots=True)
class SubmittedJob:
    """A job as its user knows it. ``is_cancelled`` says whether a fault cancelled it."""

    token: str
    id: str
    submit_time: float
    reqs: str
    kind: str
    total: int
    is_cancelled: bool = False


@dataclass(slots=True)
class Hold:
    """A person's hold that Slurm accepted, from ``since`` until ``until``."""

    token: str
    since: float
    until: float = float("inf")


@dataclass(slots=True)
class Debt:
    """A request that has yet to succeed, with the number of ``tries`` left before giving up."""

    is_done: Callable[[], bool]
    tries: int = 40


@dataclass(frozen=True, slots=True)
class Wait:
    """A period, ``start`` to ``end``, in which everything that a tick could wait for hung. hops
    could plan until ``planned_until``. Nothing hung from ``peace`` to ``start``, for comparison.
    """

    peace: float
    start: float
    planned_until: float
    end: float


class Daemon:
    """One hopsd with an adjustable clock."""

    def __init__(
        self, folder: Path, name: str, dsn: str, cluster: PrivateCluster, refresh: float
    ) -> None:
        self.name = name
        self._env = {**os.environ, **cluster.env}
        self.socket = folder / f"{name}.sock"
        self.log = folder / LOG_DISK / f"{name}.log"
        self.clock = folder / f"{name}.clock"
        self.set_clock(0.0)
        self._config = folder / f"{name}.toml"
        self._config.write_text(
            _CONFIG.format(socket=self.socket, dsn=dsn, folder=folder, refresh=refresh)
        )
        self.process: subprocess.Popen[bytes] | None = None

    def set_clock(self, offset: float) -> None:
        """Shift the daemon's clock by ``offset`` seconds, replacing the file atomically."""
        new = self.clock.with_suffix(".new")
        new.write_text(str(offset))
        new.replace(self.clock)

    def start(self) -> None:
        if self.alive:
            return
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, FOLDER / "shifted_clock.py", self.clock, "--config", self._config],
                env=self._env,
                stdin=subprocess.DEVNULL,
                stderr=log,
            )

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def send(self, number: signal.Signals) -> None:
        if self.process is not None and self.alive:
            self.process.send_signal(number)
            if number is signal.SIGKILL:
                self.process.wait()

    def ask(self, command: str, **arguments: Any) -> Any:
        """Return the daemon's answer; None if it refuses or does not answer within ASK_SECONDS."""
        with contextlib.suppress(HopsError, OSError):
            return ask(self.socket, command, ASK_SECONDS, **arguments)
        return None

    def usage(self) -> tuple[int, int] | None:
        """The daemon's open descriptors and resident bytes."""
        if not self.alive:
            return None
        assert self.process is not None
        process_folder = Path(f"/proc/{self.process.pid}")
        with contextlib.suppress(OSError, ValueError):
            pages = int((process_folder / "statm").read_text().split()[1])
            return len(list((process_folder / "fd").iterdir())), pages * os.sysconf("SC_PAGE_SIZE")
        return None


class World:
    """Everything that a fault can touch.

    ``debts`` are the requests that have not succeeded yet, by name, and ``requeues`` the jobs that
    their owner requeued, with the time. ``forgot`` are the intervals of which slurmctld lost its
    state: from its last save, which a full or busy disk may delay, to its restart.
    """

    def __init__(
        self,
        folder: Path,
        cluster: PrivateCluster,
        server: EmbeddedPostgres,
        disks: dict[str, Path],
        refresh: float = 1.0,
    ) -> None:
        self.folder = folder
        self.cluster = cluster
        self.server = server
        self.disks = disks
        self.dsn = server.create_database("hops")
        migrate(self.dsn)
        self.records = folder / "records"
        self.records.mkdir()
        self.records.chmod(0o777)
        self.reports = folder / "reports"
        self.reports.mkdir()
        self.slow_epilog = folder / SLOW_EPILOG
        self.hopsd = [Daemon(folder, name, self.dsn, cluster, refresh) for name in ("one", "two")]
        self.jobs: dict[str, SubmittedJob] = {}
        self.holds: list[Hold] = []
        self.suspended_jobs: list[SubmittedJob] = []
        self.debts: dict[str, Debt] = {}
        self.requeues: list[tuple[str, float]] = []
        self.forgot: list[tuple[float, float]] = []
        self.waits: list[Wait] = []
        self._slurmctld_stopped = False

    def run(
        self, *words: str, owner: bool = False, env: dict[str, str] | None = None
    ) -> str | None:
        """Run a command on the cluster as the jobs' owner or as root; return its standard output,
        or None if it fails.
        """
        account: tuple[str, ...] = ()
        if owner and os.geteuid() == 0:
            account = (
                "setpriv",
                f"--reuid={NOBODY_UID}",
                f"--regid={NOBODY_UID}",
                "--clear-groups",
            )
        try:
            process = subprocess.run(
                [*account, *words],
                env={**os.environ, **self.cluster.env, **(env or {})},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=COMMAND_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None
        return process.stdout if process.returncode == 0 else None

    def saved_at(self) -> float:
        """Time at which slurmctld last saved its jobs."""
        for name in ("job_state", "job_state.old"):  # one may be missing for a moment
            with contextlib.suppress(OSError):
                return (self.folder / "state" / name).stat().st_mtime
        return time.time()

    def stop_slurmctld(self, signal_number: signal.Signals = signal.SIGTERM) -> None:
        """Stop slurmctld; on SIGTERM it saves its state first."""
        began = time.time()
        self.cluster.stop_slurmctld(signal_number)
        self._slurmctld_stopped = True
        if (save_time := self.saved_at()) < began:
            self.forgot.append((save_time, time.time()))

    def start_slurmctld(self) -> None:
        """Start slurmctld, which fails if it cannot write its state."""
        if self.cluster.pid("slurmctld") is None:
            if not self._slurmctld_stopped:  # it crashed
                self.forgot.append((self.saved_at(), time.time()))
            with contextlib.suppress(ClusterError):
                self.cluster.start_slurmctld()
                self._slurmctld_stopped = False

    def start_slurmdbd(self) -> None:
        if isinstance(self.cluster, SlurmdbdCluster) and self.cluster.pid("slurmdbd") is None:
            with contextlib.suppress(ClusterError):
                self.cluster.start_slurmdbd()

    def in_order(self) -> bool:
        """Restart dead Slurm and PostgreSQL daemons, resume nodes; return whether both answer."""
        try:
            self.server.start()
        except HopsError:
            return False
        self.start_slurmdbd()
        self.start_slurmctld()
        for node in self.cluster.nodes:
            if self.cluster.pid(f"slurmd.{node}") is None:
                with contextlib.suppress(ClusterError):
                    self.cluster.start_slurmd(node)
        nodes = self.run("sinfo", "--noheader", "--Node", "--format=%N %T") or ""
        for node, state in (line.split() for line in nodes.splitlines()):
            if "drain" in state or "down" in state:  # Slurm refused to resume it, or drained it
                self.run("scontrol", "update", f"nodename={node}", "state=resume")
        for line in (self.run("squeue", "--noheader", "--format=%A|%r") or "").splitlines():
            job, _, reason = line.partition("|")
            if reason.startswith("launch failed"):  # Slurm holds it until an operator releases it
                self.run("scontrol", "release", job)
        return self.server.running and self.queue() is not None

    def well(self) -> bool:
        """Restart dead hopsd, as systemd would, and retry owed requests; return whether a hopsd
        leads, is not paused, and its last tick succeeded.
        """
        for daemon in self.hopsd:
            daemon.start()
        statuses = [s for d in self.hopsd if (s := d.ask("status"))]
        return self.pay() and any(s["mode"] == "active" and s["error"] is None for s in statuses)

    def status_lines(self) -> list[str]:
        """Status of each hopsd, and the requests still owed."""
        lines = []
        for daemon in self.hopsd:
            pid = daemon.process.pid if daemon.process is not None and daemon.alive else "dead"
            status = daemon.ask("status") or {"mode": "no answer", "sentence": ""}
            lines.append(f"{daemon.name} ({pid}) {status['mode']}: {status['sentence']}")
        return [*lines, *(f"owed: {request}" for request in self.debts)]

    def insist(self, job: SubmittedJob, *words: str, owner: bool = False) -> None:
        """Request something for ``job`` and retry until it succeeds or the job is neither pending
        nor suspended.
        """

        def request_done() -> bool:
            if self.run(*words, job.id, owner=owner) is not None:
                return True
            queue = self.queue()
            return queue is not None and queue.get(job.token, ("", ""))[1] not in HALTED_STATES

        self._owe(" ".join((*words, job.id)), request_done)

    def release(self, job: SubmittedJob) -> None:
        """Release a person's hold as operator. If Slurm forgot that hold, hops' own one stays."""
        self.insist(job, "scontrol", "release")

    def resume(self) -> None:
        """Ask any hopsd to resume."""
        self._owe("resume", lambda: any(d.ask("resume") is not None for d in self.hopsd))

    def _owe(self, name: str, is_done: Callable[[], bool]) -> None:
        """Try a request now and, if it fails, later: it may need the repair of another fault, so we
        do not wait here.
        """
        self.debts[name] = Debt(is_done)
        self.pay(name)

    def pay(self, *names: str) -> bool:
        """Try the owed requests, or only those in ``names``; return whether none remains."""
        for repair in names or tuple(self.debts):
            debt = self.debts[repair]
            debt.tries -= 1
            if debt.is_done() or debt.tries == 0:
                del self.debts[repair]
        return not self.debts

    def cut_power(self, node: str) -> None:
        """Cut the power of ``node``: kill slurmd and everything that it runs."""
        self.cluster.stop_slurmd(node, signal.SIGKILL)
        words = {f"SLURM_CONF={self.cluster.conf}".encode(), f"SLURMD_NODENAME={node}".encode()}
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if words <= set((path / "environ").read_bytes().split(b"\0")):
                    parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                    for pid in (parent, int(path.name)):
                        if (
                            pid == int(path.name)
                            or b"slurmstepd" in Path(f"/proc/{pid}/cmdline").read_bytes()
                        ):
                            os.kill(pid, signal.SIGKILL)

    def submit(self, rng: random.Random, *, stubborn: bool = False) -> None:
        """Submit a job; a ``stubborn`` one asks for 300 s to save, and ignores all signals."""
        token = uuid.UUID(int=rng.getrandbits(128)).hex[:12]
        kind, reqs, total = rng.choice(KINDS), rng.choice(REQS), rng.choice((0, 4, 10, 20, 40))
        if stubborn:
            kind, total = STUBBORN
        env = {"TOKEN": token, "KIND": kind, "TOTAL": str(total), "RECORDS": str(self.records)}
        output = self.run(
            *("sbatch", "--parsable", f"--comment=hops:reqs={reqs}", "--output=/dev/null"),
            *("--chdir=/", "--mem=100", f"--job-name={token}"),
            *(("--signal=B:USR1@300", "--time=60") if stubborn else ()),
            str(FOLDER / "worker.sh"),
            owner=True,
            env=env,
        )
        if output and output.strip().isdigit():
            self.jobs[token] = SubmittedJob(token, output.strip(), time.time(), reqs, kind, total)

    def queue(self) -> dict[str, tuple[str, str]] | None:
        """ID and state of our jobs by token; None if Slurm does not answer."""
        output = self.run("squeue", "--all", "--noheader", "--states=all", "--format=%j %A %T")
        if output is None:
            return None
        return {t: (i, s) for t, i, s in (line.split() for line in output.splitlines())}

    def keep(self, folder: Path) -> None:
        """Copy records and logs to ``folder`` for analysis."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("records", "log"):
            shutil.copytree(self.folder / name, folder / name, dirs_exist_ok=True)
        for path in (*(d.log for d in self.hopsd), self.folder / "completed"):
            if path.exists():
                shutil.copy(path, folder)

    def leader(self) -> Daemon | None:
        for daemon in self.hopsd:
            status = daemon.ask("status")
            if status and status["mode"] != "standby":
                return daemon
        return None


def wait_until(holds: Callable[[], bool], seconds: float) -> float | None:
    """Wait until ``holds()`` and return the seconds; None if that takes longer than ``seconds``."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > seconds:
            return None
        time.sleep(0.25)
    return time.monotonic() - began


class _ChaosCluster(SlurmdbdCluster):
    """A cluster with slurmdbd in which the jobs' owner has an account."""

    def add_accounts(self) -> None:
        self.sacctmgr("add", "account", "lab")
        self.sacctmgr("add", "user", pwd.getpwuid(NOBODY_UID).pw_name, "account=lab")


@contextlib.contextmanager
def world(refresh: float = 1.0) -> Iterator[World]:
    """Build a world in a temporary folder. Database, slurmctld's state, the nodes' run folder and
    hopsd's log each get a small file system if we may mount one; otherwise no fault fills them.
    slurmdbd runs only for root with MariaDB.
    """
    with contextlib.ExitStack() as stack:
        name = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="hops-chaos-", ignore_cleanup_errors=True)
        )
        folder = Path(name)
        folder.chmod(0o755)
        disks = {}
        for disk, size in DISKS.items():
            (folder / disk).mkdir(mode=0o755)
            if stack.enter_context(_mount_tmpfs(folder / disk, size)):
                disks[disk] = folder / disk
        epilog = folder / "epilog.sh"
        epilog.write_text(_EPILOG.format(folder=folder, seconds=EPILOG_SECONDS, slow=SLOW_EPILOG))
        epilog.chmod(0o755)
        conf = [
            "JobCompType=jobcomp/filetxt",
            f"JobCompLoc={folder}/completed",
            f"Epilog={epilog}",
            "MinJobAge=600",
            "SlurmdTimeout=20",
            "InactiveLimit=0",
        ]
        records = os.geteuid() == 0 and not missing_slurmdbd()
        kind = _ChaosCluster if records else PrivateCluster
        cluster = stack.enter_context(kind(folder, nodes=NODES, extra_conf=conf))
        with _temporary(folder / "database"):
            server = stack.enter_context(EmbeddedPostgres())
        new_world = World(folder, cluster, server, disks, refresh)
        stack.callback(_end, new_world)
        yield new_world


def _end(world: World) -> None:
    for daemon in world.hopsd:
        daemon.send(signal.SIGCONT)
        daemon.send(signal.SIGKILL)


@contextlib.contextmanager
def _temporary(folder: Path) -> Iterator[None]:
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before


@contextlib.contextmanager
def _mount_tmpfs(folder: Path, mebibytes: int) -> Iterator[bool]:
    options = f"size={mebibytes}m,mode=755"
    words = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    process = subprocess.run(words, capture_output=True, check=False)
    try:
        yield process.returncode == 0
    finally:
        if process.returncode == 0:
            subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, check=False)


_EPILOG = """#!/bin/sh
# Ends as soon as the fault is repaired.
left={seconds}
while [ -e {folder}/{slow} ] && [ $left -gt 0 ]; do sleep 1; left=$((left - 1)); done
exec {folder}/plugin/epilog.sh
"""
_CONFIG = """
[daemon]
refresh_seconds = {refresh:g}
round_seconds = 8
socket = "{socket}"
[slurm]
checkpoint_grace_seconds = 4
start_timeout_seconds = 15
command_timeout_seconds = 10
[database]
dsn = "{dsn}"
[plan]
time_limit = 5
unsaved = "moves"
[knowledge]
report_dir = "{folder}/reports"
[profiling]
enabled = false
"""

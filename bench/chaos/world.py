"""The place where it happens: cluster, database, two hopsd and jobs that record themselves."""

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
from hopsd.ctl.daemon import ask
from hopsd.errors import HopsError
from hopsd.store.embedded import EmbeddedPostgres
from hopsd.store.migrate import migrate

NODES = (NodeSpec("rtx3090", gpus=4, cpus=16),) * 3 + (NodeSpec("v100", gpus=2, cpus=16),) * 2
NOBODY = 65534
COMMAND_SECONDS = 8.0
ASK_SECONDS = 3.0
HALTED = ("PENDING", "SUSPENDED")
HERE = Path(__file__).parent
LOG_DISK = "hopsd-log"
DISKS = {"database": 300, "state": 300, "run": 4, LOG_DISK: 64}
"""File systems of so many MiB, which faults fill."""
EPILOG_SECONDS = 100
SLOW_EPILOG = "slow-epilog"
STUBBORN = ("stubborn", 120)
KINDS = ("saver",) * 7 + ("plain", "deaf", "broken")
REQS = ("1", "1,2", "1,2,4", "2,4", "1-6;num=3", "3", "6", "1;preempt=no")


@dataclass(slots=True)
class Submitted:
    """A job as its user knows it. ``cancelled``: somebody wanted it ended."""

    token: str
    id: str
    at: float
    reqs: str
    kind: str
    total: int
    cancelled: bool = False


@dataclass(slots=True)
class Hold:
    """A person's hold that Slurm accepted, from ``since`` until ``until``."""

    token: str
    since: float
    until: float = float("inf")


@dataclass(slots=True)
class Owed:
    """What somebody wants done; after so many ``tries`` nobody insists."""

    done: Callable[[], bool]
    tries: int = 40


@dataclass(frozen=True, slots=True)
class Wait:
    """When everything that a tick could wait for hung; plans were possible until
    ``planned_until``. From ``peace`` to ``begun`` nothing did, for comparison.
    """

    peace: float
    begun: float
    planned_until: float
    ended: float


class Daemon:
    """One hopsd whose time of day may be off; started again when it ends, as systemd would."""

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

    def set_clock(self, ahead: float) -> None:
        """Its time of day is ``ahead`` by so many seconds; it never reads half of that."""
        new = self.clock.with_suffix(".new")
        new.write_text(str(ahead))
        new.replace(self.clock)

    def start(self) -> None:
        if self.alive:
            return
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, HERE / "shifted_clock.py", self.clock, "--config", self._config],
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
        """None where it does not answer or refuses. A frozen one keeps nobody waiting for long."""
        with contextlib.suppress(HopsError, OSError):
            return ask(self.socket, command, ASK_SECONDS, **arguments)
        return None

    def usage(self) -> tuple[int, int] | None:
        """Open descriptors and resident bytes."""
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

    ``owed``: what people want done and is not yet, each with its name. ``requeued``: whom its owner
    stopped, and when. ``forgot``: from when until when slurmctld lost what happened: since it had
    saved its state, which a full or busy disk may put off.
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
        self.jobs: dict[str, Submitted] = {}
        self.holds: list[Hold] = []
        self.suspended: list[Submitted] = []
        self.owed: dict[str, Owed] = {}
        self.requeued: list[tuple[str, float]] = []
        self.forgot: list[tuple[float, float]] = []
        self.waits: list[Wait] = []
        self._slurmctld_stopped = False

    def run(
        self, *words: str, owner: bool = False, env: dict[str, str] | None = None
    ) -> str | None:
        """Standard output of a command on the cluster, as the jobs' owner or as root; None: it
        failed.
        """
        account: tuple[str, ...] = ()
        if owner and os.geteuid() == 0:
            account = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
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
        """When slurmctld last saved its jobs."""
        for name in ("job_state", "job_state.old"):  # one may be missing for a moment
            with contextlib.suppress(OSError):
                return (self.folder / "state" / name).stat().st_mtime
        return time.time()

    def stop_slurmctld(self, how: signal.Signals = signal.SIGTERM) -> None:
        """SIGTERM lets it save its state."""
        began = time.time()
        self.cluster.stop_slurmctld(how)
        self._slurmctld_stopped = True
        if (save_time := self.saved_at()) < began:
            self.forgot.append((save_time, time.time()))

    def start_slurmctld(self) -> None:
        """It refuses where it cannot write its state."""
        if self.cluster.pid("slurmctld") is None:
            if not self._slurmctld_stopped:  # it ended by itself
                self.forgot.append((self.saved_at(), time.time()))
            with contextlib.suppress(ClusterError):
                self.cluster.start_slurmctld()
                self._slurmctld_stopped = False

    def start_slurmdbd(self) -> None:
        if isinstance(self.cluster, SlurmdbdCluster) and self.cluster.pid("slurmdbd") is None:
            with contextlib.suppress(ClusterError):
                self.cluster.start_slurmdbd()

    def in_order(self) -> bool:
        """Start what has ended of Slurm and PostgreSQL, and use all nodes; whether both answer."""
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
            if "drain" in state or "down" in state:  # Slurm refused to resume it, or set it away
                self.run("scontrol", "update", f"nodename={node}", "state=resume")
        return self.server.running and self.queue() is not None

    def well(self) -> bool:
        """Start hopsd where it has ended, as systemd would, and let people insist; whether one
        hopsd leads, is not paused, and its last tick was good.
        """
        for daemon in self.hopsd:
            daemon.start()
        statuses = [s for d in self.hopsd if (s := d.ask("status"))]
        return self.pay() and any(s["mode"] == "active" and s["error"] is None for s in statuses)

    def told(self) -> list[str]:
        """What each hopsd says of itself, and what people still wait for."""
        said = []
        for daemon in self.hopsd:
            pid = daemon.process.pid if daemon.process is not None and daemon.alive else "dead"
            status = daemon.ask("status") or {"mode": "no answer", "sentence": ""}
            said.append(f"{daemon.name} ({pid}) {status['mode']}: {status['sentence']}")
        return [*said, *(f"owed: {what}" for what in self.owed)]

    def insist(self, job: Submitted, *words: str, owner: bool = False) -> None:
        """A request for ``job``, made again where it fails, as somebody would who knows that the
        cluster has troubles, while the job waits or is suspended.
        """

        def done() -> bool:
            if self.run(*words, job.id, owner=owner) is not None:
                return True
            queue = self.queue()
            return queue is not None and queue.get(job.token, ("", ""))[1] not in HALTED

        self._owe(" ".join((*words, job.id)), done)

    def release(self, job: Submitted) -> None:
        """An operator releases what a person holds. Slurm may have forgotten that hold: then the
        one by hops stays.
        """
        self.insist(job, "scontrol", "release")

    def resume(self) -> None:
        """Any hopsd may be told."""
        self._owe("resume", lambda: any(d.ask("resume") is not None for d in self.hopsd))

    def _owe(self, what: str, done: Callable[[], bool]) -> None:
        """What fails is tried again later: waiting for it here would keep other faults from being
        taken back, which it may need.
        """
        self.owed[what] = Owed(done)
        self.pay(what)

    def pay(self, *only: str) -> bool:
        """Try what is owed; whether nothing is left."""
        for repair in only or tuple(self.owed):
            debt = self.owed[repair]
            debt.tries -= 1
            if debt.done() or debt.tries == 0:
                del self.owed[repair]
        return not self.owed

    def cut(self, node: str) -> None:
        """As without power: slurmd dies and everything that it runs."""
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
        """``stubborn``: a job that asks for 300 s to save, and ignores all signals."""
        token = uuid.UUID(int=rng.getrandbits(128)).hex[:12]
        kind, reqs, total = rng.choice(KINDS), rng.choice(REQS), rng.choice((0, 4, 10, 20, 40))
        if stubborn:
            kind, total = STUBBORN
        env = {"TOKEN": token, "KIND": kind, "TOTAL": str(total), "RECORDS": str(self.records)}
        output = self.run(
            *("sbatch", "--parsable", f"--comment=hops:reqs={reqs}", "--output=/dev/null"),
            *("--chdir=/", "--mem=100", f"--job-name={token}"),
            *(("--signal=B:USR1@300", "--time=60") if stubborn else ()),
            str(HERE / "worker.sh"),
            owner=True,
            env=env,
        )
        if output and output.strip().isdigit():
            self.jobs[token] = Submitted(token, output.strip(), time.time(), reqs, kind, total)

    def queue(self) -> dict[str, tuple[str, str]] | None:
        """What Slurm says of our jobs: id and state by token; None where it does not answer."""
        output = self.run("squeue", "--all", "--noheader", "--states=all", "--format=%j %A %T")
        if output is None:
            return None
        return {t: (i, s) for t, i, s in (line.split() for line in output.splitlines())}

    def keep(self, folder: Path) -> None:
        """What somebody needs to look into it."""
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
    """Seconds until it was so; None: not in time."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > seconds:
            return None
        time.sleep(0.25)
    return time.monotonic() - began


class _ChaosCluster(SlurmdbdCluster):
    """With slurmdbd, where the jobs' owner has an account."""

    def add_accounts(self) -> None:
        self.sacctmgr("add", "account", "lab")
        self.sacctmgr("add", "user", pwd.getpwuid(NOBODY).pw_name, "account=lab")


@contextlib.contextmanager
def world(refresh: float = 1.0) -> Iterator[World]:
    """A world in a folder of its own. Database, slurmctld's state, the nodes' run folder and
    hopsd's log each have a small file system where this machine lets us mount one: else no fault
    fills them. slurmdbd runs where root has MariaDB.
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
            if stack.enter_context(_mounted(folder / disk, size)):
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


def _end(made: World) -> None:
    for daemon in made.hopsd:
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
def _mounted(folder: Path, mebibytes: int) -> Iterator[bool]:
    options = f"size={mebibytes}m,mode=755"
    words = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    process = subprocess.run(words, capture_output=True, check=False)
    try:
        yield process.returncode == 0
    finally:
        if process.returncode == 0:
            subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, check=False)


_EPILOG = """#!/bin/sh
# Ends as soon as the fault is taken back.
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

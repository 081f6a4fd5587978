"""The place where it happens: cluster, database, two hopsd and jobs that record themselves."""

from __future__ import annotations

import contextlib
import os
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
from hopsd.errors import HopsError
from hopsd.local_socket import ask
from hopsd.store.embedded import EmbeddedPostgres
from hopsd.store.migrate import migrate

NODES = (NodeSpec("rtx3090", gpus=4, cpus=16),) * 3 + (NodeSpec("v100", gpus=2, cpus=16),) * 2
NOBODY = 65534
COMMAND_SECONDS = 8.0
HERE = Path(__file__).parent
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


class Daemon:
    """One hopsd whose time of day may be off; started again when it ends, as systemd would."""

    def __init__(self, folder: Path, name: str, dsn: str, cluster: PrivateCluster) -> None:
        self.name = name
        self._env = {**os.environ, **cluster.env}
        self.socket = folder / f"{name}.sock"
        self.log = folder / f"{name}.log"
        self.clock = folder / f"{name}.clock"
        self.clock.write_text("0")
        self._config = folder / f"{name}.toml"
        self._config.write_text(_CONFIG.format(socket=self.socket, dsn=dsn, folder=folder))
        self.process: subprocess.Popen[bytes] | None = None

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
        """None where it does not answer or refuses."""
        with contextlib.suppress(HopsError, OSError):
            return ask(self.socket, command, **arguments)
        return None

    def usage(self) -> tuple[int, int] | None:
        """Open descriptors and resident bytes."""
        if not self.alive:
            return None
        assert self.process is not None
        here = Path(f"/proc/{self.process.pid}")
        with contextlib.suppress(OSError, ValueError):
            pages = int((here / "statm").read_text().split()[1])
            return len(list((here / "fd").iterdir())), pages * os.sysconf("SC_PAGE_SIZE")
        return None


class World:
    """Everything that a fault can touch.

    ``requeued``: whom its owner stopped, and when. ``given_back``: to plain Slurm. ``forgot``:
    times of which slurmctld lost what happened. ``unsaved``: when it could not save; then a restart
    in order loses as much.
    """

    def __init__(
        self,
        folder: Path,
        cluster: PrivateCluster,
        server: EmbeddedPostgres,
        disks: dict[str, Path],
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
        self.hopsd = [Daemon(folder, name, self.dsn, cluster) for name in ("one", "two")]
        self.jobs: dict[str, Submitted] = {}
        self.holds: list[Hold] = []
        self.requeued: list[tuple[str, float]] = []
        self.given_back: set[str] = set()
        self.forgot: list[tuple[float, float]] = []
        self.restarted: list[float] = []
        self.unsaved: list[tuple[float, float]] = []

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
            done = subprocess.run(
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
        return done.stdout if done.returncode == 0 else None

    def start_slurmctld(self) -> None:
        """It refuses where it cannot write its state."""
        self.restarted.append(time.time())
        if self.cluster.pid("slurmctld") is None:
            with contextlib.suppress(ClusterError):
                self.cluster.start_slurmctld()

    def start_all(self) -> None:
        """What has ended, as systemd would."""
        with contextlib.suppress(HopsError):
            self.server.start()
        self.start_slurmctld()
        for node in self.cluster.nodes:
            if self.cluster.pid(f"slurmd.{node}") is None:
                self.cluster.start_slurmd(node)
        for daemon in self.hopsd:
            daemon.start()

    def insist(self, *words: str, owner: bool = False) -> None:
        """Until it is done, as somebody would who knows that the cluster has troubles."""
        for _ in range(10):
            if self.run(*words, owner=owner) is not None:
                return
            time.sleep(0.5)

    def resume(self) -> None:
        """Any hopsd may be told."""
        for _ in range(60):
            if any(daemon.ask("resume") is not None for daemon in self.hopsd):
                return
            time.sleep(0.5)

    def cut(self, node: str) -> None:
        """As without power: slurmd dies and everything that it runs."""
        self.cluster.stop_slurmd(node, signal.SIGKILL)
        words = {f"SLURM_CONF={self.cluster.conf}".encode(), f"SLURMD_NODENAME={node}".encode()}
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if words <= set((path / "environ").read_bytes().split(b"\0")):
                    above = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                    for pid in (above, int(path.name)):
                        if (
                            pid == int(path.name)
                            or b"slurmstepd" in Path(f"/proc/{pid}/cmdline").read_bytes()
                        ):
                            os.kill(pid, signal.SIGKILL)

    def submit(self, rng: random.Random) -> None:
        token = uuid.UUID(int=rng.getrandbits(128)).hex[:12]
        kind, reqs, total = rng.choice(KINDS), rng.choice(REQS), rng.choice((0, 4, 10, 20, 40))
        env = {"TOKEN": token, "KIND": kind, "TOTAL": str(total), "RECORDS": str(self.records)}
        said = self.run(
            *("sbatch", "--parsable", f"--comment=hops:reqs={reqs}", "--output=/dev/null"),
            *("--chdir=/", "--mem=100", f"--job-name={token}", str(HERE / "worker.sh")),
            owner=True,
            env=env,
        )
        if said and said.strip().isdigit():
            self.jobs[token] = Submitted(token, said.strip(), time.time(), reqs, kind, total)

    def queue(self) -> dict[str, tuple[str, str]] | None:
        """What Slurm says of our jobs: id and state by token; None where it does not answer."""
        said = self.run("squeue", "--all", "--noheader", "--states=all", "--format=%j %A %T")
        if said is None:
            return None
        return {t: (i, s) for t, i, s in (line.split() for line in said.splitlines())}

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

    def well(self) -> bool:
        """Whether one hopsd leads and its last tick was good."""
        found = [s for d in self.hopsd if (s := d.ask("status"))]
        return any(s["mode"] == "active" and s["error"] is None for s in found)


def wait_until(holds: Callable[[], bool], seconds: float) -> float | None:
    """Seconds until it was so; None: not in time."""
    begun = time.monotonic()
    while not holds():
        if time.monotonic() - begun > seconds:
            return None
        time.sleep(0.25)
    return time.monotonic() - begun


@contextlib.contextmanager
def world() -> Iterator[World]:
    """A world in a folder of its own. Database and slurmctld's state each have a small file
    system where this machine lets us mount one: else no fault fills them.
    """
    with contextlib.ExitStack() as stack:
        name = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="hops-chaos-", ignore_cleanup_errors=True)
        )
        folder = Path(name)
        folder.chmod(0o755)
        disks = {}
        for disk in ("database", "state"):
            (folder / disk).mkdir()
            if stack.enter_context(_mounted(folder / disk)):
                disks[disk] = folder / disk
        (folder / "database").chmod(0o755)
        cluster = PrivateCluster(
            folder,
            nodes=NODES,
            extra_conf=[
                "JobCompType=jobcomp/filetxt",
                f"JobCompLoc={folder}/completed",
                "MinJobAge=600",
                "SlurmdTimeout=20",
                "InactiveLimit=0",
            ],
        )
        stack.enter_context(cluster)
        with _temporary(folder / "database"):
            server = stack.enter_context(EmbeddedPostgres())
        made = World(folder, cluster, server, disks)
        stack.callback(_end, made)
        yield made


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
def _mounted(folder: Path) -> Iterator[bool]:
    words = ["mount", "-t", "tmpfs", "-o", "size=300m,mode=755", "tmpfs", str(folder)]
    done = subprocess.run(words, capture_output=True, check=False)
    try:
        yield done.returncode == 0
    finally:
        if done.returncode == 0:
            subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, check=False)


_CONFIG = """
[daemon]
refresh_seconds = 1
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
[knowledge]
report_dir = "{folder}/reports"
[profiling]
enabled = false
"""

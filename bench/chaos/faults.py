"""Fault catalogue. A fault is a generator: it does harm, yields how long the harm should last, and
then repairs it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import psycopg

from bench.chaos.hanging import hanging_file_system
from bench.chaos.world import Daemon, Hold, SubmittedJob, Wait, World, wait_until

Harm = Callable[[World, Random], Iterator[float]]

QUIET_SECONDS = 60.0
"""How long we watch undisturbed before everything hangs at once, for comparison."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault; two kinds with a common entry in ``touches`` never overlap."""

    name: str
    touches: frozenset[str]
    harm: Harm


FAULTS: list[Kind] = []


def fault(*touches: str) -> Callable[[Harm], Harm]:
    def enter(harm: Harm) -> Harm:
        FAULTS.append(Kind(harm.__name__, frozenset(touches), harm))
        return harm

    return enter


# hopsd


def _leader(world: World) -> Daemon:
    return world.leader() or world.hopsd[0]


@fault("hopsd")
def hopsd_killed(world: World, rng: Random) -> Iterator[float]:
    daemon = _leader(world)
    daemon.send(signal.SIGKILL)
    yield rng.uniform(0.0, 4.0)
    daemon.start()


@fault("hopsd")
def both_hopsd_killed(world: World, rng: Random) -> Iterator[float]:
    for daemon in world.hopsd:
        daemon.send(signal.SIGKILL)
    yield rng.uniform(0.0, 6.0)
    for daemon in world.hopsd:
        daemon.start()


@fault("hopsd")
def hopsd_terminated(world: World, rng: Random) -> Iterator[float]:
    daemon = _leader(world)
    daemon.send(signal.SIGTERM)
    yield rng.uniform(1.0, 20.0)
    daemon.send(signal.SIGKILL)
    daemon.start()


@fault("hopsd")
def hopsd_frozen(world: World, rng: Random) -> Iterator[float]:
    daemon = _leader(world)
    daemon.send(signal.SIGSTOP)
    yield rng.choice((3.0, 12.0, 40.0))
    daemon.send(signal.SIGCONT)


@fault()
def hopsd_reloaded(world: World, _rng: Random) -> Iterator[float]:
    _leader(world).send(signal.SIGHUP)
    yield 0.0


@fault()
def signal_burst(world: World, _rng: Random) -> Iterator[float]:
    """Send SIGHUPs 0.1 ms apart: a handler that took a lock would deadlock with itself."""
    for daemon in world.hopsd:
        for _ in range(40):
            daemon.send(signal.SIGHUP)
            time.sleep(0.0001)
    yield 0.0


@fault("log")
def log_disk_full(world: World, rng: Random) -> Iterator[float]:
    yield from _full(world, "hopsd-log", rng)


@fault("clock")
def clock_set(world: World, rng: Random) -> Iterator[float]:
    daemon = _leader(world)
    daemon.set_clock(rng.choice((-3600.0, -30.0, 30.0, 3600.0)))
    yield rng.uniform(2.0, 20.0)
    daemon.set_clock(0.0)


# PostgreSQL


def _tell(world: World, *statements: bytes) -> None:
    with (
        contextlib.suppress(psycopg.Error),
        psycopg.connect(world.server.dsn(), autocommit=True, connect_timeout=3) as admin,
    ):
        for statement in statements:
            admin.execute(statement)


@fault("database")
def database_killed(world: World, rng: Random) -> Iterator[float]:
    world.server.kill()
    yield rng.uniform(0.0, 6.0)
    world.server.start()


@fault("database")
def database_restarted(world: World, rng: Random) -> Iterator[float]:
    world.server.stop()
    yield rng.uniform(0.0, 10.0)
    world.server.start()


@fault("database")
def database_frozen(world: World, rng: Random) -> Iterator[float]:
    for pid in world.server.processes():
        os.kill(pid, signal.SIGSTOP)
    yield rng.choice((2.0, 13.0))
    for pid in world.server.processes():
        os.kill(pid, signal.SIGCONT)


@fault("database")
def connections_dropped(world: World, _rng: Random) -> Iterator[float]:
    _tell(
        world,
        b"SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        b" WHERE datname = 'hops' AND pid <> pg_backend_pid()",
    )
    yield 0.0


@fault("database")
def database_read_only(world: World, rng: Random) -> Iterator[float]:
    _tell(
        world,
        b"ALTER SYSTEM SET default_transaction_read_only = on",
        b"SELECT pg_reload_conf()",
    )
    yield rng.uniform(2.0, 10.0)
    _tell(
        world,
        b"SET default_transaction_read_only = off",
        b"ALTER SYSTEM RESET default_transaction_read_only",
        b"SELECT pg_reload_conf()",
    )


def _fill(disk: Path) -> Path:
    junk = disk / "junk"
    with contextlib.suppress(OSError), junk.open("wb", buffering=0) as file:
        while file.write(b"\0" * 65536):
            pass
    return junk


def _full(world: World, disk: str, rng: Random) -> Iterator[float]:
    if disk not in world.disks:
        return
    junk = _fill(world.disks[disk])
    yield rng.uniform(2.0, 10.0)
    junk.unlink()


def _read_only(world: World, disk: str, rng: Random) -> Iterator[float]:
    if disk not in world.disks:
        return
    remount = "mount", "-o"
    subprocess.run([*remount, "remount,ro", world.disks[disk]], capture_output=True, check=False)
    yield rng.uniform(2.0, 10.0)
    subprocess.run([*remount, "remount,rw", world.disks[disk]], capture_output=True, check=False)


@fault("database")
def database_disk_full(world: World, rng: Random) -> Iterator[float]:
    yield from _full(world, "database", rng)
    world.server.start()  # in case it shut down


# Slurm


@fault("slurmctld")
def slurmctld_killed(world: World, rng: Random) -> Iterator[float]:
    world.stop_slurmctld(signal.SIGKILL)
    yield rng.uniform(0.0, 8.0)
    world.start_slurmctld()


@fault("slurmctld")
def slurmctld_restarted(world: World, rng: Random) -> Iterator[float]:
    world.stop_slurmctld()
    yield rng.uniform(0.0, 8.0)
    world.start_slurmctld()


@fault("slurmctld")
def slurmctld_frozen(world: World, rng: Random) -> Iterator[float]:
    yield from _freeze(world.cluster.pid("slurmctld"), rng.choice((2.0, 13.0)))


@fault("slurmctld")
def slurmctld_back_in_time(world: World, rng: Random) -> Iterator[float]:
    """Restart slurmctld with a saved state that is some seconds old."""
    state, saved_state = world.folder / "state", world.folder / "state.saved"
    shutil.rmtree(saved_state, ignore_errors=True)
    save_time = world.saved_at()
    try:
        shutil.copytree(state, saved_state, ignore=shutil.ignore_patterns("junk"))
    except (OSError, shutil.Error):  # slurmctld writes the state meanwhile
        return
    yield rng.uniform(2.0, 8.0)
    world.stop_slurmctld(signal.SIGKILL)
    world.forgot.append((save_time, time.time()))
    with contextlib.suppress(OSError):
        for path in state.iterdir():
            if path.name != "junk":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(saved_state, state, dirs_exist_ok=True)
    world.start_slurmctld()


@fault("state")
def state_disk_full(world: World, rng: Random) -> Iterator[float]:
    yield from _full(world, "state", rng)


@fault("state")
def state_read_only(world: World, rng: Random) -> Iterator[float]:
    yield from _read_only(world, "state", rng)


def _freeze(pid: int | None, seconds: float) -> Iterator[float]:
    if pid is None:
        return
    os.kill(pid, signal.SIGSTOP)
    yield seconds
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


@fault("slurmdbd")
def slurmdbd_frozen(world: World, rng: Random) -> Iterator[float]:
    yield from _freeze(world.cluster.pid("slurmdbd"), rng.uniform(5.0, 30.0))


@fault("slurmdbd")
def slurmdbd_killed(world: World, rng: Random) -> Iterator[float]:
    pid = world.cluster.pid("slurmdbd")
    if pid is None:
        return
    os.kill(pid, signal.SIGKILL)
    yield rng.uniform(0.0, 10.0)
    world.start_slurmdbd()


def _node(world: World, rng: Random) -> str:
    return rng.choice(sorted(world.cluster.nodes))


@fault("node")
def slurmd_restarted(world: World, rng: Random) -> Iterator[float]:
    node = _node(world, rng)
    world.cluster.stop_slurmd(node, rng.choice((signal.SIGTERM, signal.SIGKILL)))
    yield rng.uniform(0.0, 8.0)
    world.cluster.start_slurmd(node)


@fault("node")
def power_lost(world: World, rng: Random) -> Iterator[float]:
    node = _node(world, rng)
    world.cut_power(node)
    yield rng.uniform(1.0, 30.0)
    world.cluster.start_slurmd(node)


@fault("node")
def node_drained(world: World, rng: Random) -> Iterator[float]:
    yield from _set_away(world, rng, "drain")


@fault("node")
def node_set_down(world: World, rng: Random) -> Iterator[float]:
    yield from _set_away(world, rng, "down")


def _set_away(world: World, rng: Random, state: str) -> Iterator[float]:
    node = _node(world, rng)
    world.run("scontrol", "update", f"nodename={node}", f"state={state}", "reason=chaos")
    yield rng.uniform(2.0, 15.0)
    world.run("scontrol", "update", f"nodename={node}", "state=resume")


@fault("partition")
def partition_down(world: World, rng: Random) -> Iterator[float]:
    state = rng.choice(("down", "inactive", "drain"))
    world.run("scontrol", "update", "partitionname=main", f"state={state}")
    yield rng.uniform(2.0, 12.0)
    world.run("scontrol", "update", "partitionname=main", "state=up")


@fault("epilog")
def epilog_long(world: World, rng: Random) -> Iterator[float]:
    """Make epilogs that start now take 100 s, or until the repair."""
    world.slow_epilog.touch()
    yield rng.uniform(5.0, 30.0)
    world.slow_epilog.unlink(missing_ok=True)


@fault("run_dir")
def run_dir_full(world: World, rng: Random) -> Iterator[float]:
    """Fill the folder where prolog.sh writes on the nodes."""
    yield from _full(world, "run", rng)


@fault("run_dir")
def run_dir_read_only(world: World, rng: Random) -> Iterator[float]:
    yield from _read_only(world, "run", rng)


@fault("reports")
def reports_hang(world: World, rng: Random) -> Iterator[float]:
    """Make the file server of the report folder stop answering."""
    with contextlib.ExitStack() as stack:
        if stack.enter_context(hanging_file_system(world.reports)):
            yield rng.uniform(5.0, 30.0)


# People


def _held_by_owner(world: World, job: SubmittedJob, seconds: float) -> Iterator[float]:
    """Record the owner's hold of ``job``; release it after ``seconds``."""
    hold = Hold(job.token, time.time())
    world.holds.append(hold)
    yield seconds
    hold.until = min(hold.until, time.time())
    world.insist(job, "scontrol", "release", owner=True)


def _some_job(world: World, rng: Random, state: str) -> SubmittedJob | None:
    queue = world.queue() or {}
    tokens = sorted(t for t, (_, now) in queue.items() if now == state and t in world.jobs)
    return world.jobs[rng.choice(tokens)] if tokens else None


@fault()
def flood(world: World, rng: Random) -> Iterator[float]:
    for _ in range(rng.randint(3, 10)):
        world.submit(rng)
    for comment in ("hops:", "hops:reqs=0", "hops:reqs=1;samples=1e999"):
        world.run("sbatch", f"--comment={comment}", "--wrap=true", owner=True)
    yield 0.0


def _hold(world: World, job: SubmittedJob, *, owner: bool) -> bool:
    """Hold ``job`` and return whether Slurm accepts the hold. In an inactive partition Slurm 22.05
    reports failure but holds the job all the same; release it in that case.
    """
    was_held = world.run("scontrol", "hold", job.id, owner=owner) is not None
    if not was_held:
        world.insist(job, "scontrol", "release", owner=owner)
    return was_held


@fault()
def long_grace(world: World, rng: Random) -> Iterator[float]:
    """Submit jobs that ask for 300 s to save and that ignore the signal."""
    for _ in range(2):
        world.submit(rng, stubborn=True)
    yield 0.0


@fault()
def owner_holds(world: World, rng: Random) -> Iterator[float]:
    job = _some_job(world, rng, "PENDING")
    if job is not None and _hold(world, job, owner=True):
        yield from _held_by_owner(world, job, rng.uniform(3.0, 20.0))


@fault()
def running_job_requeued_and_held(world: World, rng: Random) -> Iterator[float]:
    job = _some_job(world, rng, "RUNNING")
    if job is not None and world.run("scontrol", "requeuehold", job.id, owner=True) is not None:
        yield from _held_by_owner(world, job, rng.uniform(8.0, 20.0))


@fault()
def operator_holds(world: World, rng: Random) -> Iterator[float]:
    job = _some_job(world, rng, "PENDING")
    if job is None or not _hold(world, job, owner=False):
        return
    if (world.queue() or {}).get(job.token, ("", ""))[1] != "PENDING":
        return  # it started first: a hold of a running job applies to its next start
    hold = Hold(job.token, time.time())
    world.holds.append(hold)
    world.run("scontrol", "update", f"jobid={job.id}", "starttime=now", owner=True)
    world.run("scontrol", "release", job.id, owner=True)
    yield rng.uniform(3.0, 15.0)
    for entry in world.holds:
        if entry.token == job.token:  # an operator's release also lifts the owner's hold
            entry.until = min(entry.until, time.time())
    world.insist(job, "scontrol", "release")


@fault()
def job_cancelled(world: World, rng: Random) -> Iterator[float]:
    job = _some_job(world, rng, rng.choice(("PENDING", "RUNNING")))
    if job is not None:
        job.is_cancelled = True
        world.run("scancel", job.id, owner=True)
    yield 0.0


@fault()
def job_updated(world: World, rng: Random) -> Iterator[float]:
    job = _some_job(world, rng, "PENDING")
    if job is not None:
        change = rng.choice(("timelimit=60", "nice=100", "starttime=now", "numnodes=2"))
        world.run("scontrol", "update", f"jobid={job.id}", change, owner=True)
    yield 0.0


@fault()
def job_requeued(world: World, rng: Random) -> Iterator[float]:
    job = _some_job(world, rng, "RUNNING")
    if job is not None and world.run("scontrol", "requeue", job.id, owner=True) is not None:
        world.requeues.append((job.token, time.time()))
    yield 0.0


@fault()
def job_suspended(world: World, rng: Random) -> Iterator[float]:
    job = _some_job(world, rng, "RUNNING")
    if job is None or world.run("scontrol", "suspend", job.id) is None:
        return
    world.suspended_jobs.append(job)
    yield rng.uniform(1.0, 8.0)
    world.insist(job, "scontrol", "resume")


@fault("pause")
def hops_paused(world: World, rng: Random) -> Iterator[float]:
    leader = world.leader()
    if leader is None:
        return
    if leader.ask("pause") is not None:  # hopsd may still do what it did not answer in time
        yield rng.uniform(2.0, 10.0)
    world.resume()


@fault()
def job_released(world: World, rng: Random) -> Iterator[float]:
    leader, job = world.leader(), _some_job(world, rng, "PENDING")
    if leader is not None and job is not None:
        leader.ask("release", jobs=[job.id])
    yield 0.0


def _database_silent(world: World, seconds: float) -> None:
    for pid in world.server.processes():
        os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    for pid in world.server.processes():
        os.kill(pid, signal.SIGCONT)


@fault(*{thing for kind in FAULTS for thing in kind.touches})
def every_wait_at_once(world: World, rng: Random) -> Iterator[float]:
    """Hang everything that a tick could wait for. hops cannot plan while PostgreSQL is silent: for
    4 s while we watch plans, for 13 s while we watch only ticks.
    """
    wait_until(world.well, QUIET_SECONDS)
    peace = time.time()
    time.sleep(QUIET_SECONDS)
    began = time.time()
    harms = [w(world, rng) for w in (long_grace, epilog_long, slurmdbd_frozen, reports_hang)]
    for harm in harms:
        next(harm, None)
    _database_silent(world, 4.0)
    yield 30.0
    planned_until = time.time()
    _database_silent(world, 13.0)
    world.waits.append(Wait(peace, began, planned_until, time.time()))
    for harm in harms:
        next(harm, None)

"""Fixtures for more than one folder of tests: a live, private Slurm cluster."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from examples.demo.cluster import PACKAGES, PrivateCluster, missing_programs
from hopsd.errors import SlurmError
from hopsd.model.ids import JobId

NOBODY = 65534


def skip_without_slurm() -> None:
    if missing_programs():
        pytest.skip(f"needs Slurm: apt-get install {' '.join(PACKAGES)}")


@contextlib.contextmanager
def running_cluster(**options: object) -> Iterator[PrivateCluster]:
    """A cluster in a folder that every account may enter; skips if Slurm is not installed."""
    skip_without_slurm()
    folder = Path(tempfile.mkdtemp(prefix="hops-test-"))
    folder.chmod(0o755)
    try:
        with PrivateCluster(folder, **options) as cluster:  # type: ignore[arg-type]
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def report_folder() -> Iterator[Path]:
    """Folder for jobs' reports, in memory if possible: on slow storage they report so seldom
    (WRITE_SHARE of the timing plugin) that a test would wait for minutes.
    """
    memory = "/dev/shm"  # noqa: S108
    place = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="hops-reports-", dir=place) as name:
        Path(name).chmod(0o1733)
        yield Path(name)


@pytest.fixture(scope="session")
def session_cluster() -> Iterator[PrivateCluster]:
    with tempfile.TemporaryDirectory(prefix="hops-state-", dir="/dev/shm") as name:
        Path(name).chmod(0o755)
        with running_cluster(state_dir=Path(name) / "hops") as cluster:
            yield cluster


@pytest.fixture
def cluster(session_cluster: PrivateCluster) -> Iterator[PrivateCluster]:
    """Six nodes, n0 to n3 with 8 rtx3090, n4 and n5 with 4 v100; no jobs, all nodes up."""
    yield session_cluster
    clean(session_cluster)


def clean(cluster: PrivateCluster) -> None:
    """Remove all jobs and resume drained nodes for the next test."""
    ids = cluster.run("squeue", "--all", "--noheader", "--format=%A").split()
    if ids:
        cluster.run("scancel", "--quiet", *ids)
        with contextlib.suppress(SlurmError):  # the jobs are gone
            cluster.run("scancel", "--quiet", "--signal=KILL", "--full", *ids)
    wait_until(lambda: not cluster.run("squeue", "--all", "--noheader"))
    wait_until(lambda: _all_idle(cluster))


def _all_idle(cluster: PrivateCluster) -> bool:
    """Open nodes that a test closed; nodes that have yet to register do so by themselves."""
    states = node_states(cluster)
    for node, state in states.items():
        if state.startswith(("down", "drain")):
            with contextlib.suppress(SlurmError):  # the node is up by now (24.11 and later)
                cluster.run("scontrol", "update", f"nodename={node}", "state=resume")
    return set(states.values()) == {"idle"}


def node_states(cluster: PrivateCluster) -> dict[str, str]:
    lines = cluster.run("sinfo", "--noheader", "--Node", "--format=%N %T").splitlines()
    return dict(line.split() for line in lines)


def wait_until(
    holds: Callable[[], bool], seconds: float = 90.0, describe: Callable[[], str] = str
) -> None:
    """Return as soon as ``holds()``; the limit is for what never happens, even on a busy machine.

    ``describe`` returns the present state for the message of a failure.
    """
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not so within {seconds} s\n{describe()}"
        time.sleep(0.1)


SLEEPER = "sleep 600 & wait"
SAVER = "trap 'sleep 0.5; exit 85' USR1; sleep 600 & wait"
"""Saves for half a second, then exits with the code on which Slurm requeues and holds the job."""


def submit(
    cluster: PrivateCluster,
    *options: str,
    script: str = SAVER,
    comment: str | None = "hops:reqs=1,2,4",
    uid: int | None = None,
) -> JobId:
    """Run sbatch, as account ``uid``; with ``comment`` None the job is not a hops job."""
    command = ["sbatch", "--parsable", "--output=/dev/null", "--chdir=/"]
    command += [f"--comment={comment}"] if comment is not None else []
    result = as_user(cluster, uid, *command, *options, f"--wrap={script}")
    assert result.returncode == 0, result.stderr
    return JobId(result.stdout.strip().partition(";")[0])


def as_user(
    cluster: PrivateCluster, uid: int | None, *command: str, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command on the cluster as another account, which only root can do."""
    if uid is not None and os.geteuid() != 0:
        pytest.skip("needs root, to act as another account")
    user: tuple[str, ...] = ()
    if uid is not None:
        user = ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups")
    return subprocess.run(
        [*user, *command],
        env={**os.environ, **cluster.env, "LC_ALL": "C"},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

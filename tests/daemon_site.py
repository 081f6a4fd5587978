"""A daemon with its cluster and database, and jobs that write their own log."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from fixtures_cluster import report_folder, running_cluster

from examples.demo.cluster import NodeSpec, PrivateCluster
from hopsd.ctl.daemon_client import ask
from hopsd.errors import UnreachableError
from hopsd.model.ids import JobId
from hopsd.store.postgres import PostgresStore

BIN = Path(sys.executable).parent
ROOT = Path(__file__).parents[1]
LONG = 600.0
"""Length of a job that ends when a test lets it go; even on a busy machine none ends earlier."""

WORKER = """#!/bin/bash
# Works for TOTAL half seconds in all, or until the test lets it go. On the signal it saves its
# progress and exits with the code on which Slurm requeues it.
echo "run $SLURM_JOB_ID ${SLURM_RESTART_COUNT:-0} $(scontrol show hostnames | paste -sd,)" >> $LOG
saved=$FOLDER/$SLURM_JOB_ID
done=$(cat $saved 2> /dev/null || echo 0)
trap 'echo $done > $saved; exit 85' USR1
while [ $done -lt $TOTAL ] && [ ! -e $FOLDER/go ]; do sleep 0.5 & wait $!; done=$((done + 1)); done
trap '' USR1 # finished work is not repeated
echo "end $SLURM_JOB_ID" >> $LOG
"""


class Hopsd:
    """A hopsd process that can be started, asked, killed and started again."""

    def __init__(
        self, folder: Path, dsn: str, cluster: PrivateCluster, name: str = "hopsd"
    ) -> None:
        self.folder = folder
        self.cluster = cluster
        self.dsn = dsn
        self.socket = folder / f"{name}.sock"
        self.config = folder / f"{name}.toml"
        self.log = folder / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.uid: int | None = None
        """The account that it runs as; None is the test's own."""
        self.command = [str(BIN / "hopsd")]
        self.configure()

    def configure(
        self,
        *,
        round_seconds: float = 8.0,
        profiling: bool = False,
        plan: str = "",
        tables: str = "",
    ) -> None:
        self.config.write_text(
            f"""
[daemon]
refresh_seconds = 1
round_seconds = {round_seconds}
socket = "{self.socket}"
[slurm]
checkpoint_grace_seconds = 20
start_timeout_seconds = 60
[database]
dsn = "{self.dsn}"
[plan]
time_limit = 8
{plan}
[knowledge]
assumed_restart_seconds = 1
report_dir = "{self.folder}/reports"
[profiling]
enabled = {str(profiling).lower()}
new_workloads = true
{tables}
"""
        )

    def start(self, *, wait: bool = True) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.command, "--config", str(self.config)],
                env={**os.environ, **self.cluster.env},
                stderr=log,
                user=self.uid,
                group=self.uid,
                extra_groups=None if self.uid is None else [],
            )
        if wait:
            self.wait_for(lambda status: status["ticks"] > 0)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def terminate(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()

    def status(self) -> dict[str, Any]:
        status = ask(self.socket, "status")
        assert isinstance(status, dict)
        return status

    def wait_for(self, holds: Callable[[dict[str, Any]], bool], seconds: float = 90.0) -> Any:
        """Return the first status for which ``holds`` is true."""
        deadline = time.monotonic() + seconds
        status: dict[str, Any] | None = None
        assert self.process is not None
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(UnreachableError):
                status = self.status()
                if holds(status):
                    return status
            time.sleep(0.1)
        pytest.fail(
            f"not so within {seconds} s, or hopsd ended: {status}\n{self.log.read_text()[-3000:]}"
        )


class Site:
    """Cluster, database, daemon, and a log that the jobs themselves write."""

    def __init__(self, folder: Path, dsn: str, cluster: PrivateCluster) -> None:
        self.folder = folder
        self.cluster = cluster
        self.hopsd = Hopsd(folder, dsn, cluster)
        self.store = PostgresStore(dsn)
        self.worker_log = folder / "worker.log"
        self.worker = folder / "worker.sh"
        self.worker.write_text(WORKER)

    def close(self) -> None:
        self.hopsd.stop()
        self.store.close()

    def submit(self, comment: str, seconds: float = 3.0, *options: str) -> str:
        result = subprocess.run(
            [
                *("sbatch", "--parsable", f"--comment={comment}", "--output=/dev/null"),
                *options,
                str(self.worker),
            ],
            env={
                **os.environ,
                **self.cluster.env,
                "LOG": str(self.worker_log),
                "FOLDER": str(self.folder),
                "TOTAL": str(int(seconds * 2)),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        return result.stdout.strip()

    def let_go(self) -> None:
        """Let all jobs end, including later ones."""
        (self.folder / "go").touch()

    def states(self) -> dict[str, str]:
        return {job.id: job.state.value for job in self.cluster.read_jobs()}

    def wait_until_all_completed(self, seconds: float = 120.0) -> None:
        deadline = time.monotonic() + seconds
        while set(self.states().values()) != {"COMPLETED"}:
            if time.monotonic() > deadline:
                pytest.fail(f"{self.states()}\n{self.hopsd.log.read_text()[-4000:]}")
            time.sleep(0.3)

    def runs(self) -> list[tuple[str, int, tuple[str, ...]]]:
        """The runs that the jobs logged: (job, restart count, nodes), in order."""
        lines = [line.split() for line in self.worker_log.read_text().splitlines()]
        return [
            (job, int(fields[0]), tuple(fields[1].split(",")))
            for kind, job, *fields in lines
            if kind == "run"
        ]


@contextlib.contextmanager
def measuring_site(nodes: Sequence[NodeSpec], dsn: str) -> Iterator[Site]:
    """A site whose jobs report how fast they train."""
    profiler = ROOT / "profiler" / "site"
    with (
        report_folder() as spool,
        running_cluster(nodes=nodes, report_dir=spool, profiler_path=profiler) as cluster,
    ):
        (cluster.directory / "reports").symlink_to(spool)
        with contextlib.closing(Site(cluster.directory, dsn, cluster)) as site:
            yield site


def submit(site: Site, comment: str, script: str | Path, *arguments: str) -> JobId:
    """Submit a job; a path is run as the batch script, a text as its content."""
    folder = site.folder / "work"
    folder.mkdir(exist_ok=True)
    path = Path(script)
    if isinstance(script, str):
        path = folder / f"{len(list(folder.iterdir()))}.sh"
        path.write_text(f"#!/bin/bash\n{script}\n")
    result = subprocess.run(
        ["sbatch", "--parsable", f"--comment={comment}", f"--output={folder}/%j.log",
         f"--chdir={folder}", path, *arguments],
        env={**os.environ, **site.cluster.env, "PYTHON": sys.executable,
             "CHECKPOINTS": str(folder), "TRAIN": str(ROOT / "examples" / "train.py"),
             "LOG": str(folder / "log"), "ROOT": str(ROOT)},
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return JobId(result.stdout.strip())


def placements(site: Site, job: JobId) -> list[tuple[bool, dict[str, int]]]:
    """Placements of the job, each with whether it was a measuring run."""
    return [(p.profiling, p.allocation.as_dict()) for p in site.store.placements(job)]


def measurable_example(folder: Path) -> Path:
    """examples/train.sh without the restart count, and without requeueing itself: hops starts no
    measuring run of a script that does either.
    """
    script = folder / "train.sh"
    text = (ROOT / "examples" / "train.sh").read_text()
    text = text.replace("${SLURM_RESTART_COUNT:-0}", "$(date +%s%N)")
    script.write_text(text.replace('scontrol requeue "$SLURM_JOB_ID"\n', ""))
    return script

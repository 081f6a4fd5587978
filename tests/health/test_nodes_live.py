"""Live: a node whose processors are slower is named in minutes, one whose prolog fails as well."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from fixtures_cluster import node_states, report_folder, running_cluster, wait_until

from examples.demo.cluster import NodeSpec, PrivateCluster

pytestmark = [pytest.mark.live, pytest.mark.long, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
CPU_GROUPS = Path("/sys/fs/cgroup/cpu")
PERIOD = 1_000_000
"""Microseconds."""

LOOK_SECONDS = 10.0
"""Between two runs of hopsctl, which itself takes as much of a processor as four trainings."""

Ask = Callable[..., Any]


@contextmanager
def hopsd(cluster: PrivateCluster, folder: Path, database: str, more: str) -> Iterator[Ask]:
    """A daemon; yields hopsctl, whose answers are documents."""
    config, socket = folder / "hopsd.toml", folder / "hopsd.sock"
    config.write_text(
        f'[daemon]\nround_seconds = 3600\nsocket = "{socket}"\n{more}\n'
        f'[database]\ndsn = "{database}"\n'
    )

    def ask(*command: str) -> Any:
        done = subprocess.run(
            [BIN / "hopsctl", *command, "--socket", socket, "--json"],
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(done.stdout)

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


def submit(cluster: PrivateCluster, folder: Path, comment: str, script: str) -> str:
    done = subprocess.run(
        [
            *("sbatch", "--parsable", f"--comment={comment}", f"--chdir={folder}"),
            *("--output=/dev/null", f"--wrap={script}"),
        ],
        env=os.environ | cluster.env | {"OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


@contextmanager
def cpu_group() -> Iterator[Path]:
    """A control group of its own; skips where none can be made."""
    group = CPU_GROUPS / f"hops-test-{os.getpid()}-{time.monotonic_ns()}"
    try:
        group.mkdir()
        (group / "cpu.cfs_period_us").write_text(str(PERIOD))
    except OSError as error:
        pytest.skip(f"no control group for processors can be made: {error}")
    try:
        yield group
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


class Training:
    def __init__(self, folder: Path, job: str) -> None:
        self.pid_file, self.steps_file = folder / f"{job}.pid", folder / f"{job}.steps"

    def steps(self) -> list[float]:
        """When each ended."""
        return [float(line) for line in self.steps_file.read_text().splitlines()[:-1]]

    def trains(self, steps: int) -> bool:
        return self.steps_file.exists() and len(self.steps()) >= steps

    def step_seconds(self, begin: float) -> float:
        """The mean of its steps since ``begin`` (epoch seconds)."""
        ends = [end for end in self.steps() if end >= begin]
        return (ends[-1] - ends[0]) / (len(ends) - 1)


class SlowNode:
    """A control group that keeps a training at ``1 - loss`` of the speed of others.

    What it may use of a processor follows the speeds of the last seconds: a fixed quota takes more
    or less of them by the minute, as other programs on this machine come and go.
    """

    def __init__(self, group: Path, training: Training, loss: float) -> None:
        self._group, self._training, self._loss = group, training, loss
        self._quota = 0.3 * PERIOD
        self._write()
        (group / "cgroup.procs").write_text(training.pid_file.read_text())

    def follow(self, others: Sequence[Training]) -> None:
        """Set the quota by the last 15 seconds."""
        begin = time.time() - 15.0
        target = statistics.median(o.step_seconds(begin) for o in others) / (1.0 - self._loss)
        self._quota *= self._training.step_seconds(begin) / target
        self._write()

    def _write(self) -> None:
        (self._group / "cpu.cfs_quota_us").write_text(str(round(self._quota)))


@pytest.mark.skipif("HOPS_QUIET" not in os.environ, reason="needs idle cores: make test-quiet")
def test_a_node_with_less_of_a_processor_is_named_in_ten_minutes(
    database: str, tmp_path: Path
) -> None:
    """Control groups of the jobs on two of six nodes let them run at 95 and at 90 % of their speed
    (version 1 of what version 2 calls cpu.max)."""
    tmp_path.chmod(0o755)
    with (
        cpu_group() as five,
        cpu_group() as ten,
        report_folder() as spool,
        running_cluster(
            nodes=(NodeSpec("rtx3090", gpus=1),) * 6,
            profiler_path=ROOT / "profiler" / "site",
            report_dir=spool,
        ) as cluster,
        hopsd(
            cluster,
            tmp_path,
            database,
            f'refresh_seconds = 10\n[knowledge]\nreport_dir = "{spool}"',
        ) as ask,
    ):
        script = Path(__file__).with_name("steady.py")
        command = f"exec {sys.executable} -W ignore {script} {tmp_path}"
        jobs = [submit(cluster, tmp_path, "hops:reqs=1", command) for _ in range(6)]
        trainings = {job: Training(tmp_path, job) for job in jobs}
        wait_until(lambda: all(t.trains(2500) for t in trainings.values()), 1200.0)
        rows = cluster.run("squeue", "--noheader", "--format=%A %N").splitlines()
        nodes = dict(row.split() for row in rows)
        slow = [
            SlowNode(group, trainings[job], loss)
            for job, group, loss in zip(jobs[:2], (five, ten), (0.05, 0.1), strict=True)
        ]
        since = {nodes[job]: time.time() for job in jobs[:2]}
        others = [trainings[job] for job in jobs[2:]]
        named: dict[str, Any] = {}
        next_look = time.monotonic() + LOOK_SECONDS

        def all_named() -> bool:
            nonlocal next_look
            if time.monotonic() < next_look:
                return False
            next_look = time.monotonic() + LOOK_SECONDS
            for node in slow:
                node.follow(others)
            for row in ask("health")["slow"]:
                named.setdefault(
                    row["node"], row | {"after": time.time() - since.get(row["node"], 0.0)}
                )
            return named.keys() >= since.keys()

        wait_until(all_named, 660.0, lambda: f"{named} {ask('health')}")
        print(named)
        assert all(row["after"] <= 600.0 for row in named.values()), named
        assert named.keys() == since.keys()
        cluster.run("scancel", *jobs)


def test_a_node_whose_starts_fail_one_time_in_three_is_named(database: str, tmp_path: Path) -> None:
    """The site's own watch resumes the node and releases the jobs, as after every failed prolog."""
    tmp_path.chmod(0o755)
    count = tmp_path / "count"
    count.touch()
    count.chmod(0o666)
    prolog = tmp_path / "prolog.sh"
    prolog.write_text(
        '#!/bin/sh\n[ "$SLURMD_NODENAME" = n1 ] || exit 0\n'
        f"echo >> {count}\n[ $(($(wc -l < {count}) % 3)) != 0 ]\n"
    )
    prolog.chmod(0o755)
    with (
        running_cluster(
            nodes=(NodeSpec("rtx3090", gpus=2),) * 4, extra_conf=(f"Prolog={prolog}",)
        ) as cluster,
        hopsd(cluster, tmp_path, database, "refresh_seconds = 1") as ask,
    ):
        for number in range(60):
            submit(cluster, tmp_path, f"hops:reqs=1;workload=w{number % 3}", "true")

        def over() -> bool:
            for node, state in node_states(cluster).items():
                if state.startswith("drain"):
                    with suppress(Exception):  # it is still draining
                        cluster.run("scontrol", "update", f"nodename={node}", "state=resume")
            rows = cluster.run("squeue", "--noheader", "--format=%A %T %r").splitlines()
            held = [row.split()[0] for row in rows if "launch failed" in row]
            if held:
                cluster.run("scontrol", "release", ",".join(held))
            return not rows

        wait_until(over, 900.0, lambda: cluster.run("squeue", "--format=%A %T %r %N"))
        # hopsd judges every two minutes.
        wait_until(lambda: ask("health")["lemons"], 300.0, (tmp_path / "hopsd.log").read_text)
        (lemon,) = ask("health")["lemons"]
        assert lemon["node"] == "n1"
        assert lemon["failures"] >= 3
        assert lemon["p"] < 0.01
        log = (tmp_path / "hopsd.log").read_text()
        assert log.count('"event": "launch_failed"') >= lemon["failures"]

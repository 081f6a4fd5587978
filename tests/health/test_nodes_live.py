"""Live: hopsd names a node with slower processors within minutes, and one whose prolog fails."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from fixtures_cluster import node_states, report_folder, running_cluster, wait_until
from health_rig import ROOT, hopsd, submit

from examples.demo.cluster import NodeSpec

pytestmark = [pytest.mark.live, pytest.mark.long, pytest.mark.timeout(1800)]

CPU_GROUPS = Path("/sys/fs/cgroup/cpu")
PERIOD = 1_000_000
"""Microseconds."""


@contextmanager
def cpu_group() -> Iterator[Path]:
    """Create a control group for the test; skip the test if that is impossible."""
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
        """Return when each step ended, in epoch seconds."""
        return [float(line) for line in self.steps_file.read_text().splitlines()[:-1]]

    def step_seconds(self, since: float) -> float:
        """Return the mean duration of the steps after ``since`` (epoch seconds)."""
        ends = [end for end in self.steps() if end >= since]
        return (ends[-1] - ends[0]) / (len(ends) - 1)

    def trains(self, steps: int) -> bool:
        return self.steps_file.exists() and len(self.steps()) >= steps

    def processor_seconds(self) -> float:
        """Return the processor time that all threads have used."""
        threads = Path(f"/proc/{self.pid_file.read_text()}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


class Throttle:
    """Keeps a training at ``1 - loss`` of its ``peers``' speed by limiting its processor time.

    The limit is adjusted again and again: on a busy machine all trainings wait longer for a
    processor and use less of it per second, so that a fixed limit would cost nothing.
    """

    def __init__(
        self, group: Path, training: Training, peers: Sequence[Training], loss: float
    ) -> None:
        self._group, self._training, self._peers, self._loss = group, training, peers, loss
        self._since, self._cpu_seconds = time.time(), training.processor_seconds()
        self.losses: list[float] = []
        """The part of its speed that the training lost in each period since it is throttled."""

    def begin(self) -> None:
        self._limit(self._loss)
        (self._group / "cgroup.procs").write_text(self._training.pid_file.read_text())

    def adjust(self) -> None:
        usual = median(peer.step_seconds(self._since) for peer in self._peers)
        self.losses.append(1.0 - usual / self._training.step_seconds(self._since))
        self._limit(0.5 * (self._loss - self.losses[-1]))

    def _limit(self, loss: float) -> None:
        """Set the limit to ``loss`` less than the training used since the last call."""
        now, cpu_seconds = time.time(), self._training.processor_seconds()
        quota = (cpu_seconds - self._cpu_seconds) / (now - self._since) * (1.0 - loss) * PERIOD
        (self._group / "cpu.cfs_quota_us").write_text(str(round(quota)))
        self._since, self._cpu_seconds = now, cpu_seconds


def timer(seconds: float) -> Callable[[], bool]:
    """Return a function that says whether ``seconds`` have passed since this call."""
    until = time.monotonic() + seconds
    return lambda: time.monotonic() >= until


@pytest.mark.skipif("HOPS_QUIET" not in os.environ, reason="needs idle cores: make test-quiet")
def test_a_node_with_less_processor_time_is_named_in_ten_minutes(
    database: str, tmp_path: Path
) -> None:
    """Control groups limit the jobs on two of six nodes to 95 and 90 % of their speed (version 1 of
    control groups; version 2 has cpu.max for this).
    """
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
            f'round_seconds = 3600\nrefresh_seconds = 10\n[knowledge]\nreport_dir = "{spool}"',
        ) as ask,
    ):
        script = Path(__file__).with_name("steady.py")
        command = f"exec {sys.executable} -W ignore {script} {tmp_path}"
        jobs = [
            submit(cluster, tmp_path, "hops:reqs=1", command, "--output=/dev/null")
            for _ in range(6)
        ]
        trainings = {job: Training(tmp_path, job) for job in jobs}
        wait_until(lambda: all(t.trains(5000) for t in trainings.values()), 1200.0)
        rows = cluster.run("squeue", "--noheader", "--format=%A %N").splitlines()
        nodes = dict(row.split() for row in rows)
        healthy = [trainings[job] for job in jobs[2:]]
        throttles = [
            Throttle(group, trainings[job], healthy, loss)
            for job, group, loss in zip(jobs, (five, ten), (0.05, 0.1), strict=False)
        ]
        wait_until(timer(60.0))
        for throttle in throttles:
            throttle.begin()
        since = time.time()
        slow_nodes: dict[str, Any] = {}
        while not slow_nodes.keys() >= {nodes[job] for job in jobs[:2]}:
            wait_until(timer(20.0))  # a query takes processor time from the trainings
            for throttle in throttles:
                throttle.adjust()
            after = time.time() - since
            for row in ask("health")["slow"]:
                slow_nodes.setdefault(row["node"], row | {"after": after})
            assert after <= 660.0, [slow_nodes, *(throttle.losses for throttle in throttles)]
        assert all(row["after"] <= 600.0 for row in slow_nodes.values()), slow_nodes
        assert slow_nodes.keys() == {nodes[job] for job in jobs[:2]}
        cluster.run("scancel", *jobs)


def test_a_node_whose_prolog_fails_every_third_time_is_named(database: str, tmp_path: Path) -> None:
    """A watch of the site resumes the node and releases the jobs after each failed prolog."""
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
        hopsd(cluster, tmp_path, database, "round_seconds = 3600\nrefresh_seconds = 1") as ask,
    ):
        for number in range(60):
            workload = f"hops:reqs=1;workload=w{number % 3}"
            submit(cluster, tmp_path, workload, "true", "--output=/dev/null")

        def are_finished() -> bool:
            for node, state in node_states(cluster).items():
                if state.startswith("drain"):
                    with suppress(Exception):  # the node is still draining
                        cluster.run("scontrol", "update", f"nodename={node}", "state=resume")
            rows = cluster.run("squeue", "--noheader", "--format=%A %T %r").splitlines()
            held_jobs = [row.split()[0] for row in rows if "launch failed" in row]
            if held_jobs:
                cluster.run("scontrol", "release", ",".join(held_jobs))
            return not rows

        wait_until(are_finished, 900.0, lambda: cluster.run("squeue", "--format=%A %T %r %N"))
        # hopsd judges every two minutes.
        wait_until(lambda: ask("health")["lemons"], 300.0, (tmp_path / "hopsd.log").read_text)
        (lemon,) = ask("health")["lemons"]
        assert lemon["node"] == "n1"
        assert lemon["failures"] >= 3
        assert lemon["p"] < 0.01
        log = (tmp_path / "hopsd.log").read_text()
        assert log.count('"event": "launch_failed"') >= lemon["failures"]

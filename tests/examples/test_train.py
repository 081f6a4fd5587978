"""The example as a real job: placed, stopped, moved to other GPU counts, and measured."""

from __future__ import annotations

import getpass
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fixtures_cluster import report_folder, running_cluster, wait_until

from examples.demo.cluster import NodeSpec, PrivateCluster
from hopsd.learning.reader import Collection, ReportReader
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.model.reading import Hold, JobReading, Reading, SlurmState
from hopsd.model.step import OutcomeStatus, Step, StepKind
from hopsd.slurm.apply import SlurmPort
from hopsd.slurm.scontrol import ScontrolAdapter
from hopsd.slurm.watch import ApplySettings

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
SAMPLES = 9_000


@pytest.fixture(scope="module")
def spool() -> Iterator[Path]:
    with report_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def whole_cluster(spool: Path) -> Iterator[PrivateCluster]:
    nodes = (NodeSpec("rtx3090", gpus=2), NodeSpec("rtx3090", gpus=2), NodeSpec("v100", gpus=1))
    with running_cluster(
        nodes=nodes, report_dir=spool, profiler_path=ROOT / "profiler" / "site"
    ) as cluster:
        yield cluster


@pytest.fixture
def cluster(whole_cluster: PrivateCluster, spool: Path) -> Iterator[PrivateCluster]:
    """A cluster without jobs and reports, even after a failed test."""
    yield whole_cluster
    whole_cluster.run("scancel", "--user", getpass.getuser())
    wait_until(lambda: not whole_cluster.run("squeue", "--noheader"))
    for report in spool.glob("*.json"):
        report.unlink()


class WatchedJob:
    """One job of the example on the cluster."""

    def __init__(self, cluster: PrivateCluster, folder: Path, comment: str, *options: str) -> None:
        self.cluster, self.folder = cluster, folder
        self.port = SlurmPort(ScontrolAdapter(cluster.commands()), ApplySettings())
        env = (
            os.environ
            | cluster.env
            | {
                "PYTHON": sys.executable,
                "CHECKPOINTS": str(folder),
                "TRAIN": str(ROOT / "examples" / "train.py"),
                "HOPS_REPORT_SECONDS": "1",
            }
        )
        command = ["sbatch", "--parsable", f"--comment={comment}", f"--output={folder}/log"]
        result = subprocess.run(
            [*command, f"--chdir={folder}", ROOT / "examples" / "train.sh", *options],
            env=env, cwd=folder, check=True, capture_output=True, text=True,
        )  # fmt: skip
        self.id = JobId(result.stdout.strip())

    @property
    def reading(self) -> JobReading:
        (job,) = [job for job in self.port.read().jobs if job.id == self.id]
        return job

    @property
    def log(self) -> list[str]:
        path = self.folder / "log"
        text = path.read_text() if path.exists() else ""
        return [line for line in text.splitlines() if line.startswith("samples ")]

    @property
    def history(self) -> list[dict[str, Any]]:
        path = self.folder / self.id / "history.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]

    def place(self, **gpus: int) -> None:
        job = self.reading
        running = job.state is SlurmState.RUNNING
        kind = StepKind.MOVE if running else StepKind.START
        step = Step(self.id, kind, current=job.allocation, target=Allocation.of(gpus))
        (outcome,) = self.port.apply([step])
        assert (outcome.status, outcome.error) == (OutcomeStatus.DONE, "")
        assert outcome.actual == Allocation.of(gpus)

    def trains_on(self, gpus: int) -> None:
        wait_until(lambda: any(f" gpus {gpus} " in line for line in self.log))

    def ends(self) -> None:
        try:
            wait_until(lambda: self.reading.state.finished, 280)
        finally:
            print((self.folder / "log").read_text())
        assert self.reading.state is SlurmState.COMPLETED


def collect_reports(reader: ReportReader, reading: Reading) -> Collection:
    """Collect the reports once and confirm them, so that those of finished jobs are removed."""
    reports = reader.collect(reading)
    reader.settle()
    return reports


@pytest.mark.long
def test_training_continues_on_other_gpu_counts_and_loses_no_sample(
    cluster: PrivateCluster, spool: Path, tmp_path: Path
) -> None:
    """One GPU, then three on two nodes unevenly, then two on one: as one stream of samples."""
    tmp_path.chmod(0o755)
    comment = "hops:reqs=1,2,3;batch=16;lr=0.002@1;lr_rule=linear;workload=example"
    job = WatchedJob(
        cluster, tmp_path, comment,
        "--model", "mlp", "--samples", str(SAMPLES), "--pace", "0.05", "--print-every", "5",
    )  # fmt: skip
    reader, collections = ReportReader(spool), []

    def learn() -> Collection:
        collections.append(collect_reports(reader, job.port.read()))
        return collections[-1]

    job.place(n2=1)
    job.trains_on(1)
    wait_until(lambda: bool(learn().records))
    job.place(n0=2, n1=1)
    job.trains_on(3)
    wait_until(lambda: any(r.nodes == 2 for r in learn().records))
    assert 0 < collections[-1].restart_seconds[job.id] < 120
    job.place(n1=2)
    job.trains_on(2)
    job.ends()

    moves = re.findall(r"hops: moved from (\S+) to (\S+) at", (job.folder / "log").read_text())
    assert moves == [("n2:1", "n0:2,n1:1"), ("n0:2,n1:1", "n1:2")]

    runs = job.history
    assert [run["gpus"] for run in runs] == [1, 3, 2]
    assert [run["run"] for run in runs] == [0, 1, 2]
    assert runs[0]["begin"] == 0
    assert [run["begin"] for run in runs[1:]] == [run["end"] for run in runs[:-1]]
    assert runs[-1]["end"] == SAMPLES
    assert [run["lr"] for run in runs] == pytest.approx([0.002, 0.006, 0.004])
    assert runs[-1]["losses"][-1] < 0.7 * runs[0]["losses"][0]

    assert learn().samples_done == {job.id: SAMPLES}
    assert list(spool.iterdir()) == []
    assert [refusal for collection in collections for refusal in collection.refusals] == []
    records = [record for collection in collections for record in collection.records]
    assert {record.workload for record in records} == {"example"}
    shapes = {(r.node, r.gpu_type, r.gpus, r.nodes) for r in records}
    assert {("n2", "v100", 1, 1), ("n0", "rtx3090", 3, 2), ("n1", "rtx3090", 3, 2)} <= shapes
    # 16 samples in at least 50 ms; a busy machine may be slower by far.
    assert all(16 / 0.05 * 1.05 > record.per_gpu > 5 for record in records)


@pytest.mark.long
def test_a_plain_loop_is_measured_without_changes(
    cluster: PrivateCluster, spool: Path, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    env = os.environ | cluster.env | {"HOPS_REPORT_SECONDS": "0.5"}
    plain = ROOT / "examples" / "plain.py"
    result = subprocess.run(
        ["sbatch", "--parsable", "--comment=hops:reqs=1", f"--output={tmp_path}/log",
         f"--wrap={sys.executable} {plain} 30"],
        env=env, cwd=tmp_path, check=True, capture_output=True, text=True,
    )  # fmt: skip
    job = JobId(result.stdout.strip())
    port = SlurmPort(ScontrolAdapter(cluster.commands()), ApplySettings())
    port.apply([Step(job, StepKind.START, target=Allocation.of({"n0": 1}))])
    reader = ReportReader(spool)
    collections: list[Collection] = []

    def is_complete() -> bool:
        reading = port.read()
        collections.append(collect_reports(reader, reading))
        return all(j.state.finished for j in reading.jobs if j.id == job)

    wait_until(is_complete, 280)
    assert collections[-1].samples_done == {job: 30 * 4096}
    assert any(record.node == "n0" for c in collections for record in c.records)


def test_a_profiling_run_returns_the_job_held(
    cluster: PrivateCluster, spool: Path, tmp_path: Path
) -> None:
    """The run measures, reports and requeues itself with its user's rights, under torchrun."""
    tmp_path.chmod(0o755)
    options = ("--model", "conv", "--samples", "1000000", "--pace", "0.02")
    job = WatchedJob(cluster, tmp_path, "hops:reqs=1,2;workload=new", *options)
    target = Allocation.of({"n0": 1})
    step = Step(job.id, StepKind.START, target=target, profiling=True, iterations=50)
    assert [outcome.status for outcome in job.port.apply([step])] == [OutcomeStatus.DONE]
    wait_until(lambda: job.reading.state is SlurmState.PENDING, 120)
    reading = job.reading
    assert (reading.hold, reading.restarts) == (Hold.HOPS, 1)
    (path,) = spool.glob("*.json")
    report = json.loads(path.read_text())
    assert (report["mode"], report["final"]) == ("profiling", True)
    assert 10 <= report["timed"]["iterations"] <= 50
    assert report["basics"]["t_f"] >= 0.01
    assert not (tmp_path / job.id / "finished").exists()
    cluster.run("scancel", job.id)
    wait_until(lambda: job.reading.state.finished)
    collect_reports(ReportReader(spool), job.port.read())

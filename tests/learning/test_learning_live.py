"""A daemon learns from a real training how fast it is, and recognises it later."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from fixtures_cluster import report_folder, running_cluster, wait_until

from examples.demo.cluster import NodeSpec, PrivateCluster
from hopsd.store.postgres import PostgresStore

pytestmark = [pytest.mark.live, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
NODES = (NodeSpec("rtx3090", gpus=2), NodeSpec("v100", gpus=1))


class LearningSite:
    """A cluster whose jobs are measured, and a hopsd that reads their reports."""

    def __init__(self, folder: Path, dsn: str, spool: Path, cluster: PrivateCluster) -> None:
        self.folder, self.cluster = folder, cluster
        self.config, self.socket = folder / "hopsd.toml", folder / "hopsd.sock"
        self.log = folder / "hopsd.log"
        self.config.write_text(
            f'[daemon]\nrefresh_seconds = 1\nround_seconds = 600\nsocket = "{self.socket}"\n'
            f'[database]\ndsn = "{dsn}"\n[knowledge]\nreport_dir = "{spool}"\n'
            "[bandwidth.rtx3090]\nb_link = 1e9\nb_net = 1e8\n"
        )

    def submit(self, samples: int, train: Path = ROOT / "examples" / "train.py") -> str:
        environment = {
            "PYTHON": sys.executable,
            "CHECKPOINTS": str(self.folder),
            "TRAIN": str(train),
            "HOPS_REPORT_SECONDS": "1",
        }
        result = subprocess.run(
            [
                *("sbatch", "--parsable", "--comment=hops:reqs=1", f"--chdir={self.folder}"),
                *(ROOT / "examples" / "train.sh", "--pace", "0.05", "--samples", str(samples)),
            ],
            env=os.environ | self.cluster.env | environment,
            check=True,
            capture_output=True,
            text=True,
        )
        return result.stdout.strip()

    def ask(self, *command: str) -> Any:
        result = subprocess.run(
            [BIN / "hopsctl", *command, "--socket", self.socket, "--json"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr + self.log.read_text()[-2000:]
        return json.loads(result.stdout)

    def wait_for(self, holds: Callable[[], bool], seconds: float = 90.0) -> None:
        try:
            wait_until(holds, seconds)
        except AssertionError:
            jobs = self.cluster.run("scontrol", "show", "job")
            pytest.fail(f"{jobs}\n{self.log.read_text()[-3000:]}")


@pytest.fixture
def learning_site(database: str, tmp_path: Path) -> Iterator[LearningSite]:
    tmp_path.chmod(0o755)
    profiler = ROOT / "profiler" / "site"
    with (
        report_folder() as spool,
        running_cluster(nodes=NODES, profiler_path=profiler, report_dir=spool) as cluster,
        (tmp_path / "hopsd.log").open("ab") as log,
    ):
        learning = LearningSite(tmp_path, database, spool, cluster)
        yield from _with_daemon(learning, log)


def _with_daemon(learning: LearningSite, log: BinaryIO) -> Iterator[LearningSite]:
    with (
        subprocess.Popen(
            [BIN / "hopsd", "--config", learning.config],
            env=os.environ | learning.cluster.env,
            stderr=log,
        ) as hopsd,
    ):
        try:
            learning.wait_for(learning.socket.exists)
            yield learning
        finally:
            hopsd.terminate()


@pytest.mark.long
def test_a_training_is_measured_and_recognised_again(
    learning_site: LearningSite, database: str
) -> None:
    # Slow storage spaces the reports out (WRITE_SHARE), so the job trains as long as they may take.
    samples = 400_000
    job = learning_site.submit(samples)

    def learnt_workload() -> dict[str, Any]:
        """Return the workload of which most is known."""
        rows = learning_site.ask("throughput")["workloads"]
        if not rows:
            return {"types": []}
        row = max(rows, key=lambda row: row["records"])
        return learning_site.ask("throughput", row["workload"]) | row

    def learnt_types() -> list[Any]:
        """Return GPU types with enough records; a slow profile run left some records, too."""
        return [
            k for k in learnt_workload()["types"] if k["shapes"][0]["source"].startswith("type, ")
        ]

    learning_site.wait_for(lambda: bool(learnt_types()), 240)
    workload, kind = learnt_workload(), learnt_types()[0]
    name, gpu_type = workload["workload"], kind["gpu_type"]
    assert name.startswith(f"{getpass.getuser()}/train/train.sh@")
    assert workload["records"] >= 3
    assert gpu_type in workload["measured"]
    assert gpu_type in workload["theory"]
    alone = kind["shapes"][0]
    # 32 samples take at least 0.05 s; a busy machine may be slower.
    assert 32 / 0.05 * 1.05 > alone["per_gpu"] > 10
    assert alone["theory"] is not None or kind["bandwidth"] is None
    assert kind["theory"]["params"] > 0
    assert {server["gpu_type"] for server in workload["servers"]} == set(workload["measured"])

    second_job = learning_site.submit(samples)
    learning_site.wait_for(lambda: learning_site.ask("explain", second_job)["job"] is not None)
    assert learning_site.ask("explain", second_job)["job"]["workload"] == name
    assert learning_site.ask("explain", job)["history"]["record"]["workload"] == name
    with PostgresStore(database) as store:
        assert {fit.workload for fit in store.knowledge().theory} == {name}


@pytest.mark.long
def test_a_changed_program_under_the_same_batch_script_is_new(
    learning_site: LearningSite, tmp_path: Path
) -> None:
    for name in ("train.py", "checkpoint.py", "models.py"):
        shutil.copy(ROOT / "examples" / name, tmp_path)
    train = tmp_path / "train.py"

    def workload_once_told(job: str, *earlier_names: str) -> str:
        def workload() -> str:
            record = learning_site.ask("explain", job)["history"]["record"]
            return record["workload"] if record else ""

        learning_site.wait_for(lambda: "+" in workload() and workload() not in earlier_names, 120)
        learning_site.cluster.run("scancel", job)
        return workload()

    first = workload_once_told(learning_site.submit(20_000, train))
    text = train.read_text()
    train.write_text(f"{text}# changed\n")
    changed_workload = workload_once_told(learning_site.submit(20_000, train), first)
    assert changed_workload.partition("+")[0] == first.partition("+")[0]
    train.write_text(text)
    assert workload_once_told(learning_site.submit(20_000, train), changed_workload) == first


@pytest.mark.long
def test_a_type_with_too_little_memory_is_not_given_again(
    learning_site: LearningSite, database: str
) -> None:
    train = learning_site.folder / "short.py"
    train.write_text(
        "import torch\n"
        "raise torch.cuda.OutOfMemoryError('CUDA out of memory. Tried to allocate 2.00 GiB.')\n"
    )

    def submit(*options: str, wrap: str) -> str:
        command = ("sbatch", "--parsable", "--output=/dev/null", "--chdir=/", *options)
        return learning_site.cluster.run(*command, f"--wrap={wrap}").strip()

    def job_details(job: str) -> str:
        return learning_site.cluster.run("scontrol", "show", "job", job)

    comment = "--comment=hops:reqs=1;preempt=no;workload=large"
    failed_job = submit(comment, "--nodelist=n1", wrap=f"exec {sys.executable} {train}")
    with PostgresStore(database) as store:
        learning_site.wait_for(lambda: bool(store.knowledge().shortages), 150)
    assert "JobState=FAILED" in job_details(failed_job)
    gpu_holder = submit("--gres=gpu:2", "--nodelist=n0", wrap="sleep 600")
    learning_site.wait_for(lambda: "JobState=RUNNING" in job_details(gpu_holder))
    second_job = submit(comment, wrap="sleep 1")

    def shortage_notice() -> str:
        row = learning_site.ask("explain", second_job)["job"]
        return (row["noticed"] or "") if row else ""

    learning_site.wait_for(
        lambda: "no v100 GPUs, since it ran out of GPU memory on 1" in shortage_notice()
    )
    learning_site.cluster.run("scancel", gpu_holder)
    learning_site.wait_for(lambda: " NodeList=n0" in job_details(second_job).replace("\n", " "))

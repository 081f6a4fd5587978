"""A daemon learns from a real training how fast it is, and knows it again."""

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


class Learning:
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
        done = subprocess.run(
            [
                *("sbatch", "--parsable", "--comment=hops:reqs=1", f"--chdir={self.folder}"),
                *(ROOT / "examples" / "train.sh", "--pace", "0.05", "--samples", str(samples)),
            ],
            env=os.environ | self.cluster.env | environment,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    def ask(self, *command: str) -> Any:
        done = subprocess.run(
            [BIN / "hopsctl", *command, "--socket", self.socket, "--json"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr + self.log.read_text()[-2000:]
        return json.loads(done.stdout)

    def wait_for(self, holds: Callable[[], bool], seconds: float = 90.0) -> None:
        try:
            wait_until(holds, seconds)
        except AssertionError:
            jobs = self.cluster.run("scontrol", "show", "job")
            pytest.fail(f"{jobs}\n{self.log.read_text()[-3000:]}")


@pytest.fixture
def learning(database: str, tmp_path: Path) -> Iterator[Learning]:
    tmp_path.chmod(0o755)
    profiler = ROOT / "profiler" / "site"
    with (
        report_folder() as spool,
        running_cluster(nodes=NODES, profiler_path=profiler, report_dir=spool) as cluster,
        (tmp_path / "hopsd.log").open("ab") as log,
    ):
        learning = Learning(tmp_path, database, spool, cluster)
        yield from _with_daemon(learning, log)


def _with_daemon(learning: Learning, log: BinaryIO) -> Iterator[Learning]:
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


def test_a_training_is_measured_and_known_again(learning: Learning, database: str) -> None:
    # Slow storage spaces the reports (WRITE_SHARE): the job trains for as long as they may take.
    samples = 400_000
    job = learning.submit(samples)

    def told() -> dict[str, Any]:
        """Of the workload of which most is known."""
        rows = learning.ask("throughput")["workloads"]
        if not rows:
            return {"types": []}
        row = max(rows, key=lambda row: row["records"])
        return learning.ask("throughput", row["workload"]) | row

    def measured() -> list[Any]:
        """Types with enough records to answer; a profile run that took long left some, too."""
        return [k for k in told()["types"] if k["shapes"][0]["source"].startswith("type, ")]

    learning.wait_for(lambda: bool(measured()), 240)
    workload, kind = told(), measured()[0]
    name, gpu_type = workload["workload"], kind["gpu_type"]
    assert name.startswith(f"{getpass.getuser()}/train/train.sh@")
    assert workload["records"] >= 3
    assert gpu_type in workload["measured"]
    assert gpu_type in workload["theory"]
    alone = kind["shapes"][0]
    # 32 samples in at least 0.05 s; a busy machine may be slower.
    assert 32 / 0.05 * 1.05 > alone["per_gpu"] > 10
    assert alone["theory"] is not None or kind["bandwidth"] is None
    assert kind["theory"]["params"] > 0
    assert {server["gpu_type"] for server in workload["servers"]} == set(workload["measured"])

    again = learning.submit(samples)
    learning.wait_for(lambda: learning.ask("explain", again)["job"] is not None)
    assert learning.ask("explain", again)["job"]["workload"] == name
    assert learning.ask("explain", job)["history"]["record"]["workload"] == name
    with PostgresStore(database) as store:
        assert {fit.workload for fit in store.knowledge().theory} == {name}


@pytest.mark.long
def test_a_changed_script_behind_the_same_batch_script_is_new(
    learning: Learning, tmp_path: Path
) -> None:
    for name in ("train.py", "checkpoint.py", "models.py"):
        shutil.copy(ROOT / "examples" / name, tmp_path)
    train = tmp_path / "train.py"

    def workload_once_told(job: str, *others: str) -> str:
        def workload() -> str:
            record = learning.ask("explain", job)["history"]["record"]
            return record["workload"] if record else ""

        learning.wait_for(lambda: "+" in workload() and workload() not in others, 120)
        learning.cluster.run("scancel", job)
        return workload()

    first = workload_once_told(learning.submit(20_000, train))
    text = train.read_text()
    train.write_text(f"{text}# changed\n")
    changed = workload_once_told(learning.submit(20_000, train), first)
    assert changed.partition("+")[0] == first.partition("+")[0]
    train.write_text(text)
    assert workload_once_told(learning.submit(20_000, train), changed) == first


def test_a_type_whose_memory_was_too_small_is_not_given_again(
    learning: Learning, database: str
) -> None:
    train = learning.folder / "short.py"
    train.write_text(
        "import torch\n"
        "raise torch.cuda.OutOfMemoryError('CUDA out of memory. Tried to allocate 2.00 GiB.')\n"
    )

    def submit(*options: str, wrap: str) -> str:
        command = ("sbatch", "--parsable", "--output=/dev/null", "--chdir=/", *options)
        return learning.cluster.run(*command, f"--wrap={wrap}").strip()

    def shown(job: str) -> str:
        return learning.cluster.run("scontrol", "show", "job", job)

    comment = "--comment=hops:reqs=1;preempt=no;workload=large"
    failed = submit(comment, "--nodelist=n1", wrap=f"exec {sys.executable} {train}")
    with PostgresStore(database) as store:
        learning.wait_for(lambda: bool(store.knowledge().shortages), 150)
    assert "JobState=FAILED" in shown(failed)
    other = submit("--gres=gpu:2", "--nodelist=n0", wrap="sleep 600")
    learning.wait_for(lambda: "JobState=RUNNING" in shown(other))
    again = submit(comment, wrap="sleep 1")

    def noticed() -> str:
        row = learning.ask("explain", again)["job"]
        return (row["noticed"] or "") if row else ""

    learning.wait_for(lambda: "no v100 GPUs, since it ran out of GPU memory on 1" in noticed())
    learning.cluster.run("scancel", other)
    learning.wait_for(lambda: " NodeList=n0" in shown(again).replace("\n", " "))

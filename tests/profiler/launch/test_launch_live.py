"""The launcher in real Slurm jobs: one rank for each GPU on every node."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fixtures_cluster import report_folder, running_cluster, wait_until

from examples.demo.cluster import NodeSpec, PrivateCluster
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.model.step import OutcomeStatus, Step, StepKind
from hopsd.slurm.apply import SlurmPort
from hopsd.slurm.scontrol import ScontrolAdapter
from hopsd.slurm.watch import ApplySettings

pytestmark = [pytest.mark.live, pytest.mark.slow]

ROOT = Path(__file__).parents[3]
TELL = """
import os, sys, time
gpus = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
mine = gpus[int(os.environ["LOCAL_RANK"])]
said = ["rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"],
        os.environ["SLURMD_NODENAME"], mine, os.environ["MASTER_PORT"]]
os.write(1, (" ".join(said) + "\\n").encode())  # in one piece: ranks share the file
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[PrivateCluster]:
    nodes = (NodeSpec("rtx3090", gpus=3), NodeSpec("rtx3090", gpus=2))
    with (
        report_folder() as spool,
        running_cluster(
            nodes=nodes, report_dir=spool, profiler_path=ROOT / "profiler" / "site"
        ) as cluster,
    ):
        yield cluster


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("{run} {script}", id="in the batch script"),
        pytest.param(
            "srun --nodes=2 --ntasks=2 --ntasks-per-node=1 {run} {script}", id="once a node"
        ),
        pytest.param(
            "srun --nodes=2 --ntasks=2 --ntasks-per-node=1 {python} -m hops_profiler.launch"
            " --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=$(hostname):29617 {script}",
            id="with torchrun's options",
        ),
    ],
)
def test_every_gpu_of_an_uneven_job_gets_one_rank(
    cluster: PrivateCluster, tmp_path: Path, line: str
) -> None:
    tmp_path.chmod(0o755)
    script = tmp_path / "tell.py"
    script.write_text(TELL)
    text = line.format(run=ROOT / "slurm_plugin" / "hops-run", script=script, python=sys.executable)
    result = subprocess.run(
        ["sbatch", "--parsable", "--comment=hops:reqs=3", f"--output={tmp_path}/log",
         f"--wrap={text}"],
        env=os.environ | cluster.env | {"PYTHON": sys.executable}, cwd=tmp_path, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    job = JobId(result.stdout.strip())
    port = SlurmPort(ScontrolAdapter(cluster.commands()), ApplySettings())
    step = Step(job, StepKind.START, target=Allocation.of({"n0": 2, "n1": 1}))
    (outcome,) = port.apply([step])
    assert outcome.status is OutcomeStatus.DONE, outcome.error
    wait_until(lambda: all(j.state.finished for j in port.read().jobs if j.id == job), 240)
    log = (tmp_path / "log").read_text()
    report = sorted(line.split()[1:] for line in log.splitlines() if line.startswith("rank "))
    assert [words[:3] for words in report] == [[str(r), "of", "3"] for r in range(3)], log
    assert [words[3] for words in report] == ["n0", "n0", "n1"]
    assert len({(words[3], words[4]) for words in report}) == 3

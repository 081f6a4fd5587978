"""examples/lanes.sh in a real Slurm job with two GPUs resumes after a move."""

from __future__ import annotations

import json
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
TRIAL = """
import os, signal, sys
import torch
number, folder = sys.argv[1:]
saved = os.path.join(folder, f"saved.{number}")
model = torch.nn.Linear(20, 20)
optimizer = torch.optim.Adam(model.parameters())
begin = 0
if os.path.exists(saved):
    begin, weights, moments = torch.load(saved)
    model.load_state_dict(weights)
    optimizer.load_state_dict(moments)
def save(*_):
    torch.save((i + 1, model.state_dict(), optimizer.state_dict()), saved)
    sys.exit(0)
signal.signal(signal.SIGUSR1, save)
i = begin
while not (begin and i >= begin + 5):
    optimizer.zero_grad()
    model(torch.ones(1, 20)).square().sum().backward()
    optimizer.step()
    print(i, os.environ["SLURM_JOB_ID"], flush=True)
    i += 1
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[PrivateCluster]:
    with (
        report_folder() as spool,
        running_cluster(
            nodes=(NodeSpec("rtx3090", gpus=2),),
            report_dir=spool,
            profiler_path=ROOT / "profiler" / "site",
        ) as cluster,
    ):
        yield cluster


@pytest.mark.long
def test_a_lane_can_be_moved_to_another_number_of_gpus(
    cluster: PrivateCluster, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "trial.py").write_text(TRIAL)
    lines = [f"{tmp_path}/trial.py {number} {tmp_path}" for number in range(1, 5)]
    (tmp_path / "trials.txt").write_text("\n".join(lines))
    result = subprocess.run(
        ["sbatch", "--parsable", "--comment=hops:reqs=1,2;app=search", f"--output={tmp_path}/log",
         ROOT / "examples" / "lanes.sh", "trials.txt", "--iterations=5", "--memory=8K",
         "--standby=1"],
        env=os.environ | cluster.env
        | {"PYTHON": sys.executable, "OMP_NUM_THREADS": "1",
           "PATH": f"{ROOT / 'slurm_plugin'}:{os.environ['PATH']}"},
        cwd=tmp_path, check=True, capture_output=True, text=True,
    )  # fmt: skip
    job = JobId(result.stdout.strip())
    port = SlurmPort(ScontrolAdapter(cluster.commands()), ApplySettings())

    two, single = Allocation.of({"n0": 2}), Allocation.of({"n0": 1})

    def apply(step: Step) -> None:
        (outcome,) = port.apply([step])
        assert outcome.status is OutcomeStatus.DONE, outcome.error

    def log(number: int) -> list[str]:
        path = tmp_path / "trials.txt.lane" / f"{number}.log"
        return path.read_text().splitlines() if path.exists() else []

    apply(Step(job, StepKind.START, target=two))
    wait_until(lambda: all(len(log(number)) > 5 for number in range(1, 5)), 240)
    assert {path.name for path in (tmp_path / "trials.txt.lane").glob("turns.*")} == {
        "turns.0", "turns.1",
    }  # fmt: skip
    apply(Step(job, StepKind.MOVE, current=two, target=single))
    assert all((tmp_path / f"saved.{number}").exists() for number in range(1, 5))
    wait_until(lambda: all(j.state.finished for j in port.read().jobs if j.id == job), 240)
    journal = (tmp_path / "trials.txt.lane" / "journal").read_text().splitlines()
    assert sorted((e["trial"], e["code"]) for e in map(json.loads, journal)) == [
        (number, 0) for number in range(1, 5)
    ], (tmp_path / "log").read_text()

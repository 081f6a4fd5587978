"""A real job is moved: its node's epilog writes its last state after its end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fixtures_cluster import wait_until

from examples.demo.cluster import PrivateCluster
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.model.step import OutcomeStatus, Step, StepKind
from hopsd.slurm.apply import SlurmPort
from hopsd.slurm.scontrol import ScontrolAdapter
from hopsd.slurm.watch import ApplySettings

pytestmark = [pytest.mark.live, pytest.mark.slow]

ROOT = Path(__file__).parents[3]
TRAIN = r"""
import os, sys, time
import hops_profiler, torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
done = 0
kept = hops_profiler.Checkpoint(sys.argv[1], lambda: {"done": done})
begin = done = (kept.load() or {"done": 0})["done"]
while begin == 0 or done < begin + 3:
    done += 1
    time.sleep(0.01)
    print(f"{rank} {begin} {done}\n", end="", flush=True)
    kept.step()
dist.destroy_process_group()
"""
SCRIPT = """#!/bin/bash
#SBATCH --nodes=1 --signal=USR1@60
srun --ntasks=1 hops-run train.py $PWD/run.pt
"""


@pytest.mark.long
def test_a_moved_job_resumes_from_its_last_step(cluster: PrivateCluster, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "train.sh").write_text(SCRIPT)
    result = subprocess.run(
        ["sbatch", "--parsable", "--comment=hops:reqs=2", f"--output={tmp_path}/log",
         "--open-mode=append", "train.sh"],
        env=os.environ | cluster.env
        | {"PYTHON": sys.executable, "OMP_NUM_THREADS": "1",
           "HOPS_REPORT_DIR": str(tmp_path),
           "PATH": f"{ROOT / 'slurm_plugin'}:{os.environ['PATH']}"},
        cwd=tmp_path, check=True, capture_output=True, text=True,
    )  # fmt: skip
    job = JobId(result.stdout.strip())
    port = SlurmPort(ScontrolAdapter(cluster.commands()), ApplySettings())

    def apply(step: Step) -> None:
        (outcome,) = port.apply([step])
        assert outcome.status is OutcomeStatus.DONE, outcome.error

    def steps() -> list[tuple[int, int, int]]:
        path = tmp_path / "log"
        lines = path.read_text().splitlines() if path.exists() else []
        results = [[int(word) for word in line.split()] for line in lines if line[:1] in "01"]
        return [(rank, begin, position) for rank, begin, position in results]

    place, target = Allocation.of({"n0": 2}), Allocation.of({"n1": 2})
    apply(Step(job, StepKind.START, target=place))
    wait_until(lambda: len(steps()) > 20)
    apply(Step(job, StepKind.MOVE, current=place, target=target))
    wait_until(lambda: all(j.state.finished for j in port.read().jobs if j.id == job))
    last = max(position for _, begin, position in steps() if begin == 0)
    assert {(rank, begin) for rank, begin, _ in steps()} == {
        (rank, begin) for rank in (0, 1) for begin in (0, last)
    }, (tmp_path / "log").read_text()
    assert cluster.state_dir
    folders = [cluster.state_dir / f"{job}.{node}" for node in ("n0", "n1")]
    assert [[file.name for file in folder.iterdir()] for folder in folders] == [["mounts"]] * 2
    assert {file.name for file in tmp_path.glob("*run.pt*")} == {"run.pt"}

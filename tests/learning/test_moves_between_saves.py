"""Live: a training without a warning signal is moved between two saves, never during one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from daemon_site import ROOT
from fixtures_cluster import report_folder, running_cluster, submit, wait_until

from examples.demo.cluster import NodeSpec
from hopsd.learning.save_reader import SaveReader
from hopsd.model.allocation import Allocation
from hopsd.model.step import OutcomeStatus, Step, StepKind
from hopsd.slurm.apply import SlurmPort
from hopsd.slurm.scontrol import ScontrolAdapter
from hopsd.slurm.watch import ApplySettings

pytestmark = [pytest.mark.live, pytest.mark.long]

TRAINING = """
import io, sys, time, torch
notes = open(sys.argv[1], "a", buffering=1)
class Slow(io.BytesIO):
    begun = False
    def write(self, data):
        if not self.begun:
            self.begun = True
            notes.write("begun\\n")
            time.sleep(3.0)
            notes.write("ended\\n")
        return super().write(data)
w = torch.ones(4, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
notes.write("run\\n")
while True:
    for _ in range(20):
        optimizer.zero_grad(); (w * w).sum().backward(); optimizer.step()
        time.sleep(0.1)
    torch.save({"w": w}, Slow())
"""


def test_no_move_interrupts_a_save(tmp_path: Path) -> None:
    """The training saves during 3 of every 5 s and is moved three times.

    Before hops considered saves, a third of such moves interrupted one.
    """
    script, notes = tmp_path / "train.py", tmp_path / "notes"
    tmp_path.chmod(0o755)
    script.write_text(TRAINING)
    settings = ApplySettings(
        grace_seconds=30.0,
        longest_grace_seconds=60.0,
        stop_timeout_seconds=60.0,
        start_timeout_seconds=60.0,
        poll_seconds=0.1,
    )
    nodes = [NodeSpec("a100", gpus=2, cpus=4)] * 2
    with (
        report_folder() as reports,
        running_cluster(
            nodes=nodes, report_dir=reports, profiler_path=ROOT / "profiler" / "site"
        ) as cluster,
    ):
        port = SlurmPort(
            ScontrolAdapter(cluster.commands()), settings, saves=SaveReader(lambda: reports)
        )
        job = submit(
            cluster, comment="hops:reqs=1", script=f"exec {sys.executable} {script} {notes}"
        )
        for number in range(4):
            kind = StepKind.MOVE if number else StepKind.START
            place = Allocation.of({f"n{number % 2}": 1})
            (outcome,) = port.apply([Step(job, kind, target=place)])
            assert outcome.status is OutcomeStatus.DONE, outcome
            wait_until(lambda run=number: saved_twice(notes, run))
    runs = notes.read_text().split("run\n")[1:]
    assert len(runs) == 4
    for run in runs[:-1]:
        lines = run.split()
        assert lines.count("begun") == lines.count("ended"), notes.read_text()


def saved_twice(notes: Path, run: int) -> bool:
    runs = notes.read_text().split("run\n")[1:] if notes.exists() else []
    return len(runs) > run and runs[run].count("ended") >= 2

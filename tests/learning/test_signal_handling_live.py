"""Live: hops distinguishes trainings that handle their script's signal from those it kills."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from daemon_site import ROOT
from fixtures_cluster import report_folder, running_cluster, wait_until

from examples.demo.cluster import NodeSpec
from hopsd.learning.reader import ReportReader
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.model.step import Step, StepKind
from hopsd.slurm.apply import SlurmPort
from hopsd.slurm.scontrol import ScontrolAdapter
from hopsd.slurm.watch import ApplySettings

pytestmark = pytest.mark.live

TRAINING = """
import signal, sys, time, torch
if sys.argv[1:] == ["handle"]:
    signal.signal(signal.SIGUSR1, lambda *_: None)
w = torch.ones(4, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
while True:
    optimizer.zero_grad(); (w * w).sum().backward(); optimizer.step()
    time.sleep(0.05)
"""
CASES = {
    "srun {python} train.py handle": True,
    "srun {python} -m hops_profiler.launch train.py handle": True,
    "srun {python} train.py": False,
    "srun bash -c '{python} train.py handle; true'": False,
    "trap : USR1; {python} train.py handle": False,  # not started by srun: no signal reaches it
}


@pytest.mark.long
def test_reports_show_whether_a_signal_to_the_steps_is_handled(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "train.py").write_text(TRAINING)
    with (
        report_folder() as reports,
        running_cluster(
            nodes=[NodeSpec("a100", gpus=5, cpus=10)],
            report_dir=reports,
            profiler_path=ROOT / "profiler" / "site",
        ) as cluster,
    ):
        port = SlurmPort(
            ScontrolAdapter(cluster.commands()), ApplySettings(start_timeout_seconds=60.0)
        )
        jobs = {}
        for command, answers in CASES.items():
            script = tmp_path / "job.sh"
            commands = f"export HOPS_REPORT_SECONDS=1\n{command.format(python=sys.executable)}\n"
            script.write_text(f"#!/bin/bash\n#SBATCH --signal=USR1@5\n{commands}")
            options = ("--parsable", "--output=/dev/null", f"--chdir={tmp_path}")
            job = cluster.run("sbatch", *options, "--comment=hops:reqs=1", str(script)).strip()
            jobs[JobId(job)] = answers
        place = Allocation.of({"n0": 1})
        port.apply([Step(job, StepKind.START, target=place) for job in jobs])
        reader, reported_answers = ReportReader(reports), dict[JobId, bool]()

        def all_train() -> bool:
            reported_answers.update(reader.collect(port.read()).answers_signal)
            reader.settle()
            return reported_answers.keys() == jobs.keys()

        wait_until(all_train, seconds=120.0)
    assert reported_answers == jobs

"""Each recommended way of saving, moved once on a site with accounting: no run has failed, no mail
says so, and no dependent job started before the end of the job.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fixtures_accounting import AccountingCluster, accounting_cluster
from fixtures_cluster import wait_until

from examples.demo.cluster import NodeSpec
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.model.reading import SlurmState
from hopsd.model.step import OutcomeStatus, Step, StepKind
from hopsd.slurm.apply import SlurmPort
from hopsd.slurm.scontrol import ScontrolAdapter
from hopsd.slurm.watch import ApplySettings

pytestmark = pytest.mark.live

SETTINGS = ApplySettings(
    grace_seconds=20.0, stop_timeout_seconds=60.0, start_timeout_seconds=60.0, poll_seconds=0.1
)
WORKS = "touch ready.$SLURM_JOB_ID; until [ -e go ]; do sleep 0.3 & wait $!; done"
CHECKPOINT = f"""
srun {sys.executable} -c '
import os, pathlib, time
from hops_profiler import Checkpoint
checkpoint = Checkpoint("last.pt", lambda: {{"step": 1}})
checkpoint.load()
pathlib.Path("ready." + os.environ["SLURM_JOB_ID"]).touch()
while not os.path.exists("go"):
    time.sleep(0.1)
    checkpoint.step()
'"""
WAYS = {
    "nothing": WORKS,
    "a signal to the steps, which end": f"""#SBATCH --signal=USR1@5
srun bash -c "trap 'exit 0' USR1; {WORKS.replace("$!", chr(92) + "$!")}"
""",
    "requeues itself": f"""#SBATCH --signal=B:USR1@30
trap 'scontrol requeue $SLURM_JOB_ID; sleep 60' USR1
{WORKS}""",
    "keeps running": f"#SBATCH --signal=B:USR1@4\ntrap 'echo saved' USR1\n{WORKS}",
    "hops_profiler.Checkpoint": f"#SBATCH --signal=USR1@60\n{CHECKPOINT}",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[AccountingCluster]:
    tmp_path.chmod(0o755)
    mail = tmp_path / "mail.sh"
    mail.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/mails\n')
    mail.chmod(0o755)
    nodes = [NodeSpec("a100", gpus=8, cpus=16)] * 2
    with accounting_cluster(nodes, [f"MailProg={mail}", "JobFileAppend=1"]) as cluster:
        yield cluster


@pytest.mark.long
def test_no_way_of_saving_leaves_a_trace(cluster: AccountingCluster, tmp_path: Path) -> None:
    port = SlurmPort(ScontrolAdapter(cluster.commands()), SETTINGS)
    jobs, dependents = {}, {}
    for way, text in WAYS.items():
        script = tmp_path / "job.sh"
        script.write_text(f"#!/bin/bash\n{text}\n")
        options = ("--parsable", f"--chdir={tmp_path}", "--output=job-%j.log")
        job = cluster.run(
            "sbatch", *options, "--comment=hops:reqs=1", "--mail-type=ALL", str(script)
        ).strip()
        jobs[way] = JobId(job)
        dependents[way] = [
            cluster.run("sbatch", *options, f"--dependency={kind}:{job}", "--wrap=true").strip()
            for kind in ("afterok", "afternotok")
        ]
    places = {kind: Allocation.of({node: 1}) for kind, node in (("start", "n0"), ("move", "n1"))}
    for kind, place in (
        (StepKind.START, places["start"]),
        (StepKind.MOVE, places["move"]),
    ):
        outcomes = port.apply([Step(job, kind, target=place) for job in jobs.values()])
        outcome_by_way = {
            way: next(o for o in outcomes if o.step.job == job) for way, job in jobs.items()
        }
        assert {o.status for o in outcomes} == {OutcomeStatus.DONE}, outcome_by_way
        wait_until(lambda: all((tmp_path / f"ready.{job}").exists() for job in jobs.values()))
        # A run that is requeued before slurmdbd has seen its start has no record of its own.
        wait_until(lambda: all(runs(cluster, job)[-1] == "RUNNING|0:0" for job in jobs.values()))
    for job, _ in dependents.values():
        assert state(cluster, job) == "PENDING"
    (tmp_path / "go").touch()
    wait_until(
        lambda: (
            {job.state for job in port.read().jobs if job.id in jobs.values()}
            == {SlurmState.COMPLETED}
        )
    )
    mails = (tmp_path / "mails").read_text().splitlines()
    for way, job in jobs.items():
        after_ok, after_not_ok = dependents[way]
        wait_until(lambda name=after_ok: state(cluster, name) == "COMPLETED")
        assert state(cluster, after_not_ok) == "PENDING", way
        wait_until(lambda name=job: runs(cluster, name)[-1].startswith("COMPLETED"))
        assert runs(cluster, job) == ["REQUEUED|0:0", "COMPLETED|0:0"], way
        mails_of_job = [
            mail.partition(f"Job_id={job} ")[2].split(maxsplit=1)[1]
            for mail in mails
            if f"Job_id={job} " in mail
        ]
        assert [mail.split()[0].strip(",") for mail in mails_of_job].count("Ended") == 1, (
            way,
            mails_of_job,
        )
        assert not [mail for mail in mails_of_job if "Failed" in mail or "FAILED" in mail], (
            way,
            mails_of_job,
        )


def state(cluster: AccountingCluster, job: str) -> str:
    return cluster.run(
        "squeue", "--states=all", "--noheader", "--format=%T", f"--jobs={job}"
    ).strip()


def runs(cluster: AccountingCluster, job: str) -> list[str]:
    """slurmdbd's records of the job's runs, oldest first; never empty."""
    text = cluster.run(
        *("sacct", "--duplicates", "--allocations", "--noheader", "--parsable2"),
        *("--format=State,ExitCode", f"--jobs={job}"),
    )
    return text.split() or [""]

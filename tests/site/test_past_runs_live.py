"""Past runs, and what running jobs were submitted with, out of a live slurmdbd."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from fixtures_accounting import ALICE, AccountingCluster, accounting_cluster, uid_of
from fixtures_cluster import SLEEPER, submit, wait_until

from examples.demo.cluster import NodeSpec
from hopsd.model.allocation import Allocation
from hopsd.model.history import LoggedJob
from hopsd.model.ids import JobId
from hopsd.model.script_options import ScriptOptions
from hopsd.model.step import Step, StepKind
from hopsd.slurm.accounting.jobs import read_logged
from hopsd.slurm.accounting.past_runs import read_past_runs
from hopsd.slurm.apply import SlurmPort
from hopsd.slurm.ask import read_cluster
from hopsd.slurm.scontrol import ScontrolAdapter

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def accounted() -> Iterator[AccountingCluster]:
    with accounting_cluster([NodeSpec("a100", gpus=4, cpus=8)]) as cluster:
        yield cluster


def test_a_plain_job_is_read_out_of_the_accounting(accounted: AccountingCluster) -> None:
    job = submit(
        accounted,
        "--job-name=a|b",
        "--gres=gpu:2",
        script="sleep 8",  # Slurm gives the accounting a job's name within 5 s of its start
        comment=None,
        uid=uid_of(ALICE),
    )
    commands = accounted.commands()
    wait_until(lambda: [run.name for run in read_past_runs(commands, days=1)] == ["a|b"])
    (record,) = read_past_runs(commands, days=1)
    assert (record.id, record.user, record.account, record.name) == (job, ALICE, "lab", "a|b")
    assert record.run_seconds >= 1.0
    assert record.attained_gpu_seconds == 2 * record.run_seconds
    assert record.end is not None
    assert record.submit <= record.end - record.run_seconds


def test_a_signal_of_the_command_line_is_known_once_the_job_runs(
    accounted: AccountingCluster,
) -> None:
    job = submit(accounted, "--signal=B:USR2@45", script=SLEEPER, uid=uid_of(ALICE))
    adapter = ScontrolAdapter(accounted.commands())
    SlurmPort(adapter).apply([Step(job, StepKind.START, target=Allocation.of({"n0": 1}))])

    def asked() -> ScriptOptions:
        return next(one for one in adapter.read().jobs if one.id == job).options

    wait_until(lambda: asked().signal == "USR2")
    assert (asked().signal_steps, asked().signal_seconds) == (False, 45)


def test_all_runs_of_a_requeued_job_are_read(accounted: AccountingCluster) -> None:
    began, commands = time.time(), accounted.commands()
    job = submit(accounted, "--gres=gpu:1", script=SLEEPER, comment=None, uid=uid_of(ALICE))

    def logged() -> LoggedJob | None:
        found = read_logged(commands, began - 60.0, time.time() + 60.0)
        return next((one for one in found if one.id == JobId(job)), None)

    def runs(seconds: float = 0.0) -> int:
        found = logged()
        begun = found.runs if found is not None else ()
        return len([run for run in begun if run.start <= time.time() - seconds])

    # slurmdbd knows a run by its job and the second of its submission, or of its requeue.
    wait_until(lambda: runs(seconds=2.0) == 1)
    accounted.run("scontrol", "requeue", job)
    wait_until(lambda: "BeginTime" in accounted.run("squeue", "--noheader", "--format=%r"))
    # slurmd refuses a credential of the second in which it killed the job, or of the next.
    killed = time.time()
    wait_until(lambda: time.time() > killed + 2.0)
    accounted.run("scontrol", "update", f"jobid={job}", "starttime=now")
    wait_until(lambda: runs() == 2)
    found = logged()
    assert found is not None
    assert (found.user, found.account, found.gpus) == (ALICE, "lab", 1)
    first, second = found.runs
    assert first.end is not None
    assert found.since <= first.start <= first.end <= second.start
    assert second.end is None
    servers, down = read_cluster(commands, ())
    assert ([(s.gpu_type, s.gpus) for s in servers.servers], down) == ([("a100", 4)], [])

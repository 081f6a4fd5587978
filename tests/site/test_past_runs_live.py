"""Past runs, and the submit lines of running jobs, from a live slurmdbd."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from fixtures_accounting import ALICE, AccountingCluster, accounting_cluster, uid_of
from fixtures_cluster import SLEEPER, submit, wait_until

from examples.demo.cluster import NodeSpec
from hopsd.model.allocation import Allocation
from hopsd.model.history import JobRecord, LoggedJob
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
def accounting_site() -> Iterator[AccountingCluster]:
    with accounting_cluster([NodeSpec("a100", gpus=8, cpus=16)]) as cluster:
        yield cluster


def test_a_plain_job_is_read_from_the_accounting(accounting_site: AccountingCluster) -> None:
    job = submit(
        accounting_site,
        "--job-name=a|b",
        "--gres=gpu:2",
        script="sleep 8",  # Slurm sends a job's name to the accounting within 5 s of its start
        comment=None,
        uid=uid_of(ALICE),
    )
    commands = accounting_site.commands()

    def records() -> list[JobRecord]:
        return [run for run in read_past_runs(commands, days=1) if run.id == job]

    wait_until(lambda: [run.name for run in records()] == ["a|b"])
    (record,) = records()
    assert (record.user, record.account) == (ALICE, "lab")
    assert record.run_seconds >= 1.0
    assert record.attained_gpu_seconds == 2 * record.run_seconds
    assert record.end is not None
    assert record.submit <= record.end - record.run_seconds


def test_a_signal_from_the_command_line_is_known_once_the_job_runs(
    accounting_site: AccountingCluster,
) -> None:
    job = submit(accounting_site, "--signal=B:USR2@45", script=SLEEPER, uid=uid_of(ALICE))
    adapter = ScontrolAdapter(accounting_site.commands())
    SlurmPort(adapter).apply([Step(job, StepKind.START, target=Allocation.of({"n0": 1}))])

    def options_of_job() -> ScriptOptions:
        return next(
            job_reading for job_reading in adapter.read().jobs if job_reading.id == job
        ).options

    wait_until(lambda: options_of_job().signal == "USR2")
    assert (options_of_job().signal_steps, options_of_job().signal_seconds) == (False, 45)


def test_all_runs_of_a_requeued_job_are_read(accounting_site: AccountingCluster) -> None:
    began, commands = time.time(), accounting_site.commands()
    job = submit(accounting_site, "--gres=gpu:1", script=SLEEPER, comment=None, uid=uid_of(ALICE))

    def logged_job() -> LoggedJob | None:
        entries = read_logged(commands, began - 60.0, time.time() + 60.0)
        return next((entry for entry in entries if entry.id == JobId(job)), None)

    def runs(seconds: float = 0.0) -> int:
        entry = logged_job()
        runs_of_job = entry.runs if entry is not None else ()
        return len([run for run in runs_of_job if run.start <= time.time() - seconds])

    # slurmdbd identifies a run by its job and the second of its submission or requeue.
    wait_until(lambda: runs(seconds=2.0) == 1)
    accounting_site.run("scontrol", "requeue", job)
    wait_until(lambda: "BeginTime" in accounting_site.run("squeue", "--noheader", "--format=%r"))
    # slurmd refuses a credential from the second in which it killed the job, or from the next one.
    kill_time = time.time()
    wait_until(lambda: time.time() > kill_time + 2.0)
    accounting_site.run("scontrol", "update", f"jobid={job}", "starttime=now")
    wait_until(lambda: runs() == 2)
    entry = logged_job()
    assert entry is not None
    assert (entry.user, entry.account, entry.gpus) == (ALICE, "lab", 1)
    first, second = entry.runs
    assert first.end is not None
    assert entry.since <= first.start <= first.end <= second.start
    assert second.end is None
    servers, down_nodes = read_cluster(commands, ())
    assert ([(s.gpu_type, s.gpus) for s in servers.servers], down_nodes) == ([("a100", 8)], [])


def test_a_job_name_cannot_forge_a_record(accounting_site: AccountingCluster) -> None:
    forged_line = (
        "99|root|root|2026-01-01T00:00:00|2026-01-01T01:00:00|3600|gres/gpu=2|COMPLETED|forged"
    )
    job = submit(
        accounting_site,
        f"--job-name=evil\n{forged_line}",
        "--gres=gpu:1",
        script="sleep 6",
        comment=None,
        uid=uid_of(ALICE),
    )
    commands = accounting_site.commands()
    wait_until(lambda: "evil" in [run.name for run in read_past_runs(commands, days=1)])
    assert "forged" in accounting_site.run("sacct", "--allusers", "-nP", "--format=JobName")
    assert [run.id for run in read_past_runs(commands, days=1) if run.id in ("99", job)] == [job]

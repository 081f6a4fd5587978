"""Jobs leave with their work saved, and no ended job runs again."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path

import pytest
from fixtures_cluster import SAVER, SLEEPER, submit, wait_until
from slurm_contract import (
    SETTINGS,
    assert_runs_as_planned,
    hold,
    move,
    preempt,
    reading,
    start,
    statuses,
)

from examples.demo.cluster import PrivateCluster
from hopsd.errors import SlurmError
from hopsd.model.ids import JobId
from hopsd.model.reading import Hold, SlurmState
from hopsd.model.step import OutcomeStatus
from hopsd.slurm.adapter import Adapter, SignalScope
from hopsd.slurm.apply import SlurmPort

pytestmark = pytest.mark.live

KEEPS_RUNNING = "trap 'echo saved' USR1; while true; do sleep 600 & wait; done"
"""Handles the signal without leaving; with ``trap ''``, hops would not send it."""


@pytest.fixture
def traces(cluster: PrivateCluster) -> Path:
    """A folder into which jobs write."""
    folder = cluster.directory / "traces" / os.urandom(4).hex()
    folder.mkdir(parents=True)
    return folder


def start_and_wait(cluster: PrivateCluster, port: SlurmPort, job: JobId, **gpus: int) -> JobId:
    """Start a job and wait until it has set its traps: before, a signal would end the script."""
    assert_runs_as_planned(port, port.apply([start(job, **gpus)]))
    wait_until(lambda: sleeps(cluster, job))
    return job


def sleeps(cluster: PrivateCluster, job: JobId) -> bool:
    job_variables = {f"SLURM_CONF={cluster.conf}".encode(), f"SLURM_JOB_ID={job}".encode()}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "environ").read_bytes().split(b"\0")
            if job_variables <= set(words) and (process / "comm").read_bytes() == b"sleep\n":
                return True
    return False


def test_a_job_saves_and_leaves_by_itself(
    cluster: PrivateCluster, port: SlurmPort, traces: Path
) -> None:
    saver = f"trap 'sleep 1; echo saved > {traces}/saved; exit 85' USR1; sleep 600 & wait"
    job = start_and_wait(cluster, port, submit(cluster, script=saver), n0=2)
    [outcome] = port.apply([preempt(job)])
    job_after = reading(port, job)
    assert outcome.status is OutcomeStatus.DONE
    assert outcome.vacated is not None
    assert (job_after.state, job_after.hold, job_after.restarts) == (
        SlurmState.PENDING,
        Hold.HOPS,
        1,
    )
    assert (traces / "saved").read_text() == "saved\n"
    assert not job_after.allocation


def test_a_grace_period_ends_with_a_requeue(cluster: PrivateCluster, adapter: Adapter) -> None:
    """A job that saves and continues is not stopped before its grace is over."""
    port = SlurmPort(adapter, replace(SETTINGS, grace_seconds=2.0))
    job = start_and_wait(cluster, port, submit(cluster, script=KEEPS_RUNNING), n0=2)
    [outcome] = port.apply([preempt(job)])
    job_after = reading(port, job)
    assert outcome.status is OutcomeStatus.DONE
    assert outcome.seconds >= 2.0
    assert (job_after.state, job_after.hold, job_after.restarts) == (
        SlurmState.PENDING,
        Hold.HOPS,
        1,
    )


def test_all_jobs_share_one_grace_period_and_swap_places(
    cluster: PrivateCluster, adapter: Adapter
) -> None:
    port = SlurmPort(adapter, replace(SETTINGS, grace_seconds=4.0))
    first, second = submit(cluster, script=KEEPS_RUNNING), submit(cluster, script=SAVER)
    assert_runs_as_planned(port, port.apply([start(first, n4=4), start(second, n5=4)]))
    outcomes = port.apply([move(first, n5=4), move(second, n4=4)])
    assert_runs_as_planned(port, outcomes)
    assert outcomes[0].vacated is not None
    assert outcomes[1].vacated is not None
    assert outcomes[1].vacated < outcomes[0].vacated


def test_a_job_killed_by_our_signal_is_kept(cluster: PrivateCluster, port: SlurmPort) -> None:
    """Its script asked for the signal but does not handle it, so hops' signal ended it."""
    job = start_and_wait(cluster, port, submit(cluster, script="sleep 600"), n0=2)
    cluster.run("scontrol", "update", f"jobid={job}", "admincomment=hops:asks|signal:batch:USR1")
    assert_runs_as_planned(port, port.apply([move(job, n1=2)]))


@pytest.mark.parametrize("asks", ["traps:USR1|ends:USR1", "traps:none"])
def test_a_job_that_its_signal_would_end_is_moved_without_it(
    cluster: PrivateCluster, port: SlurmPort, traces: Path, asks: str
) -> None:
    handler = f"trap 'touch {traces}/ended; exit 0' USR1; " if "ends" in asks else ""
    script = f"echo run >> {traces}/runs; {handler}sleep 600 & wait"
    job = start_and_wait(cluster, port, submit(cluster, script=script), n0=2)
    words = f"hops:asks|signal:batch:USR1:10|{asks}"
    cluster.run("scontrol", "update", f"jobid={job}", f"admincomment={words}")
    assert_runs_as_planned(port, port.apply([move(job, n1=2)]))
    wait_until(lambda: (traces / "runs").read_text() == "run\nrun\n")
    assert not (traces / "ended").exists()


@pytest.mark.parametrize("code", [0, 3])
def test_a_job_that_ends_in_its_grace_is_left_alone(
    cluster: PrivateCluster, port: SlurmPort, traces: Path, code: int
) -> None:
    """requeuehold would run a completed job again. Here the script's text does not show its end."""
    script = f"echo run >> {traces}/runs; trap 'exit {code}' USR1; sleep 600 & wait"
    job = start_and_wait(cluster, port, submit(cluster, script=script), n0=2)
    cluster.run("scontrol", "update", f"jobid={job}", "admincomment=hops:asks|traps:USR1")
    [outcome] = port.apply([move(job, n1=2)])
    assert outcome.status is OutcomeStatus.GONE
    job_after = reading(port, job)
    assert job_after.state is (SlurmState.FAILED if code else SlurmState.COMPLETED)
    assert job_after.exit_code == code
    assert (traces / "runs").read_text() == "run\n"


def test_steps_for_ended_jobs_change_nothing(cluster: PrivateCluster, port: SlurmPort) -> None:
    job = start_and_wait(cluster, port, submit(cluster), n0=1)
    cluster.run("scancel", "--signal=KILL", "--full", job)
    wait_until(lambda: reading(port, job).state.finished)
    outcomes = [port.apply([step])[0] for step in (move(job, n1=1), preempt(job), hold(job))]
    assert statuses(outcomes) == [OutcomeStatus.GONE] * 3
    assert reading(port, job).state.finished


def test_a_no_requeue_job_keeps_running(cluster: PrivateCluster, port: SlurmPort) -> None:
    job = submit(cluster, "--no-requeue", comment="hops:reqs=1,2;preempt=no", script=SLEEPER)
    start_and_wait(cluster, port, job, n0=2)
    outcomes = port.apply([move(job, n1=2)])
    assert statuses(outcomes) == [OutcomeStatus.FAILED]
    assert "--no-requeue" in outcomes[0].error
    assert outcomes[0].actual == reading(port, job).allocation
    assert outcomes[0].actual.as_dict() == {"n0": 2}


def test_a_signal_can_be_sent_to_the_steps_too(
    cluster: PrivateCluster, adapter: Adapter, traces: Path
) -> None:
    port = SlurmPort(adapter, replace(SETTINGS, signal_scope=SignalScope.ALL))
    trap_line = f"trap 'echo task > {traces}/task; exit 0' USR1; touch {traces}/trapped"
    task = f"trap 'touch {traces}/up' USR2; {trap_line}; while :; do sleep 600 & wait; done"
    script = f"trap 'wait; exit 85' USR1; srun bash -c \"{task}\" & wait; wait"
    job = start_and_wait(cluster, port, submit(cluster, script=script), n0=2)
    wait_until((traces / "trapped").exists)
    takes_signals(cluster, job, traces / "up")
    [outcome] = port.apply([preempt(job)])
    assert outcome.status is OutcomeStatus.DONE
    assert (traces / "task").exists()


def test_another_signal_can_be_requested(
    cluster: PrivateCluster, adapter: Adapter, traces: Path
) -> None:
    port = SlurmPort(adapter, replace(SETTINGS, checkpoint_signal="USR2"))
    script = f"trap 'touch {traces}/saved; exit 85' USR2; sleep 600 & wait"
    job = start_and_wait(cluster, port, submit(cluster, script=script), n0=1)
    [outcome] = port.apply([preempt(job)])
    assert outcome.status is OutcomeStatus.DONE
    assert (traces / "saved").exists()


def test_preempting_twice_changes_nothing(cluster: PrivateCluster, port: SlurmPort) -> None:
    job = start_and_wait(cluster, port, submit(cluster), n0=2)
    assert statuses(port.apply([preempt(job)])) == [OutcomeStatus.DONE]
    job_before = reading(port, job)
    assert statuses(port.apply([preempt(job)])) == [OutcomeStatus.UNCHANGED]
    assert reading(port, job) == job_before


def takes_signals(cluster: PrivateCluster, job: JobId, ready_file: Path) -> None:
    """Wait until the job's step takes signals: Slurm drops those sent while it starts tasks."""

    def is_signalled() -> bool:
        with contextlib.suppress(SlurmError):
            cluster.run("scancel", "--signal=USR2", job)
        return ready_file.exists()

    wait_until(is_signalled)


@pytest.mark.parametrize("kind", ["batch:USR2", "steps:TERM"])
def test_a_script_gets_the_signal_that_it_requested(
    cluster: PrivateCluster, port: SlurmPort, traces: Path, kind: str
) -> None:
    scope, _, name = kind.partition(":")
    handler = f"trap 'echo {name} > {traces}/got; exit 85' {name}; touch {traces}/trapped"
    script = f"{handler}; sleep 600 & wait"
    if scope == "steps":
        trap_line = f"trap 'touch {traces}/up' USR2; {handler}; while :; do sleep 600 & wait; done"
        script = f'srun bash -c "{trap_line}"; exit 85'
    job = start_and_wait(cluster, port, submit(cluster, script=script), n0=2)
    wait_until((traces / "trapped").exists)
    if scope == "steps":
        takes_signals(cluster, job, traces / "up")
    cluster.run("scontrol", "update", f"jobid={job}", f"admincomment=hops:asks|signal:{kind}")
    [outcome] = port.apply([preempt(job)])
    assert outcome.status is OutcomeStatus.DONE
    assert (traces / "got").read_text().strip() == name
    assert reading(port, job).hold is Hold.HOPS


def test_a_script_gets_the_time_that_it_requested(cluster: PrivateCluster, port: SlurmPort) -> None:
    """It does not leave, so the time that it asked for runs out, not the site's 20 s."""
    job = start_and_wait(cluster, port, submit(cluster, script=KEEPS_RUNNING), n0=2)
    words = "admincomment=hops:asks|signal:batch:USR1:2"
    cluster.run("scontrol", "update", f"jobid={job}", words)
    [outcome] = port.apply([preempt(job)])
    assert outcome.status is OutcomeStatus.DONE
    assert 2.0 <= outcome.seconds < SETTINGS.grace_seconds


def test_a_script_without_a_trap_does_not_fail(cluster: PrivateCluster, port: SlurmPort) -> None:
    """A job that fails would strand jobs that wait for its success, before it can be requeued."""
    job = start_and_wait(cluster, port, submit(cluster, script="sleep 600"), n0=2)
    child = submit(cluster, f"--dependency=afterok:{job}", comment=None)
    assert_runs_as_planned(port, port.apply([move(job, n1=2)]))
    job_details = cluster.run("scontrol", "show", "job", child)
    assert f"afterok:{job}(unfulfilled)" in job_details


def test_a_script_that_requeues_itself_is_moved(cluster: PrivateCluster, port: SlurmPort) -> None:
    """submitit and Lightning do so: they save, have Slurm requeue the job, and exit with 0."""
    script = "trap 'scontrol requeue $SLURM_JOB_ID; exit 0' USR1; sleep 600 & wait"
    job = start_and_wait(cluster, port, submit(cluster, script=script), n0=2)
    assert_runs_as_planned(port, port.apply([move(job, n1=2)]))


@pytest.mark.parametrize("handler", ["", "trap 'exit 0' USR1;"], ids=["dies", "exits 0"])
def test_a_signal_for_the_steps_ends_no_job(
    cluster: PrivateCluster, port: SlurmPort, handler: str
) -> None:
    """Regression: with `--signal=USR1@3` before a plain srun, hops' own signal ended the job as
    COMPLETED, its dependents started, and its short run was learnt.
    """
    script = f'srun bash -c "{handler} sleep 600 & wait"; exit 0'
    job = start_and_wait(cluster, port, submit(cluster, script=script), n0=2)
    child = submit(cluster, f"--dependency=afterok:{job}", comment=None)
    words = "admincomment=hops:asks|signal:steps:USR1:3"
    cluster.run("scontrol", "update", f"jobid={job}", words)
    assert_runs_as_planned(port, port.apply([move(job, n1=2)]))
    assert f"afterok:{job}(unfulfilled)" in cluster.run("scontrol", "show", "job", child)
    assert reading(port, job).restarts == 1

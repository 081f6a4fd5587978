"""What a measuring run needs from Slurm besides a placement: its mark, and the requeue after it."""

from __future__ import annotations

from pathlib import Path

import pytest
from fixtures_cluster import submit, wait_until
from slurm_contract import reading, statuses

from examples.demo.cluster import PrivateCluster
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.model.reading import Hold, SlurmState
from hopsd.model.step import OutcomeStatus, Step, StepKind
from hopsd.slurm.apply import SlurmPort

pytestmark = pytest.mark.live


def profile(job: JobId, **gpus: int) -> Step:
    target = Allocation.of(gpus)
    return Step(job, StepKind.START, target=target, profiling=True, iterations=20)


def put_back(job: JobId) -> Step:
    return Step(job, StepKind.REQUEUE, profiling=True)


def test_the_job_learns_how_many_iterations_to_measure(
    cluster: PrivateCluster, port: SlurmPort, tmp_path: Path
) -> None:
    tmp_path.chmod(0o777)
    job = submit(cluster, script=f"echo $HOPS_PROFILE-$HOPS_GPUS > {tmp_path}/said; sleep 600")
    (outcome,) = port.apply([profile(job, n0=1)])
    assert (outcome.status, outcome.error) == (OutcomeStatus.DONE, "")
    assert reading(port, job).profiling
    environment_file = tmp_path / "said"
    wait_until(lambda: environment_file.exists() and bool(environment_file.read_text()))
    assert environment_file.read_text() == "20-1\n"


def test_runs_with_the_same_comment_can_follow_each_other(
    cluster: PrivateCluster, port: SlurmPort
) -> None:
    for node in ("n0", "n1"):
        job = submit(cluster, script="sleep 600")
        (outcome,) = port.apply([profile(job, **{node: 1})])
        assert (outcome.error, outcome.status) == ("", OutcomeStatus.DONE)


@pytest.mark.parametrize("code", [3, 0])
def test_an_ended_run_is_requeued_once_and_runs_again_only_when_placed(
    cluster: PrivateCluster, port: SlurmPort, code: int
) -> None:
    """This also holds for exit code 0: `train.py | tee log` returns it even if train.py failed."""
    end_state = SlurmState.FAILED if code else SlurmState.COMPLETED
    job = submit(cluster, script=f"sleep 2; exit {code}")
    port.apply([profile(job, n0=1)])
    wait_until(lambda: reading(port, job).state is end_state)
    assert reading(port, job).ended_in_profile
    assert statuses(port.apply([put_back(job)])) == [OutcomeStatus.DONE]
    wait_until(lambda: reading(port, job).state is SlurmState.PENDING)
    job_reading = reading(port, job)
    assert (job_reading.hold, job_reading.restarts) == (Hold.HOPS, 1)
    assert statuses(port.apply([put_back(job)])) == [OutcomeStatus.UNCHANGED]
    port.apply([Step(job, StepKind.START, target=Allocation.of({"n1": 2}))])
    wait_until(lambda: reading(port, job).state is end_state)
    assert not reading(port, job).ended_in_profile
    assert statuses(port.apply([put_back(job)])) == [OutcomeStatus.GONE]


def test_a_failed_profile_run_does_not_end_the_wait_of_dependent_jobs(
    cluster: PrivateCluster, port: SlurmPort
) -> None:
    parent = submit(cluster, script="sleep 2; exit 3")
    dependent_job = submit(cluster, f"--dependency=afterany:{parent}", script="sleep 600")
    assert not reading(port, parent).is_awaited, "hops keeps the one that waits"
    port.apply([profile(parent, n0=1)])
    wait_until(lambda: reading(port, parent).state is SlurmState.FAILED)
    assert reading(port, dependent_job).dependency
    port.apply([put_back(parent)])
    wait_until(lambda: reading(port, parent).state is SlurmState.PENDING)
    assert reading(port, dependent_job).dependency
    port.apply([Step(parent, StepKind.START, target=Allocation.of({"n1": 1}))])
    wait_until(lambda: reading(port, parent).state is SlurmState.FAILED)
    assert not reading(port, dependent_job).dependency


def test_a_job_that_plain_jobs_depend_on_is_marked(
    cluster: PrivateCluster, port: SlurmPort
) -> None:
    parent = submit(cluster, script="sleep 600")
    later = submit(cluster, f"--dependency=afterok:{parent}", comment=None, script="sleep 1")
    assert reading(port, parent).is_awaited
    cluster.run("scancel", later)
    wait_until(lambda: not reading(port, parent).is_awaited)


def test_a_cancelled_run_does_not_run_again(cluster: PrivateCluster, port: SlurmPort) -> None:
    job = submit(cluster, script="sleep 600")
    port.apply([profile(job, n0=1)])
    cluster.run("scancel", job)
    wait_until(lambda: reading(port, job).state.finished)
    assert statuses(port.apply([put_back(job)])) == [OutcomeStatus.GONE]
    assert reading(port, job).state is SlurmState.CANCELLED

"""What is planned is what runs, on a live cluster: even and uneven shapes, beside other jobs."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from fixtures_cluster import submit, wait_until
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
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.model.reading import Hold, SlurmState
from hopsd.model.step import OutcomeStatus, Step, StepKind
from hopsd.slurm.adapter import Adapter
from hopsd.slurm.apply import SlurmPort

pytestmark = pytest.mark.live


def test_even_shapes_run_as_planned(cluster: PrivateCluster, port: SlurmPort) -> None:
    jobs = [submit(cluster) for _ in range(5)]
    steps = [
        start(jobs[0], n0=1),
        start(jobs[1], n0=4, n1=4),
        start(jobs[2], n0=3),
        start(jobs[3], n1=2, n2=2, n3=2),
        start(jobs[4], n4=4, n5=4),
    ]
    assert_runs_as_planned(port, port.apply(steps))
    assert statuses(port.apply(steps)) == [OutcomeStatus.UNCHANGED] * 5


@pytest.mark.parametrize(
    ("placements_beside", "uneven_placement"),
    [
        ([{"n0": 6}, {"n2": 1}], {"n0": 2, "n2": 4}),
        ([{"n0": 1}], {"n0": 7, "n1": 1}),
        ([{"n0": 6}, {"n2": 5}], {"n0": 2, "n1": 8, "n2": 3}),
        ([{"n2": 1}], {"n1": 8, "n2": 7, "n3": 2}),
        ([], {"n4": 4, "n5": 1}),
    ],
)
def test_an_uneven_shape_runs_beside_others(
    cluster: PrivateCluster,
    port: SlurmPort,
    placements_beside: list[dict[str, int]],
    uneven_placement: dict[str, int],
) -> None:
    """The uneven job is first in the plan, but others must run before it can."""
    steps = [start(submit(cluster), **uneven_placement)] + [
        start(submit(cluster), **o) for o in placements_beside
    ]
    assert_runs_as_planned(port, port.apply(steps))


def test_two_uneven_jobs_share_a_node(cluster: PrivateCluster, port: SlurmPort) -> None:
    """The second job fills what the first one leaves on n1."""
    first, second = submit(cluster), submit(cluster)
    steps = [start(second, n1=5, n2=2), start(first, n0=8, n1=3)]
    assert_runs_as_planned(port, port.apply(steps))


def test_a_job_moves_from_uneven_to_even_and_back(cluster: PrivateCluster, port: SlurmPort) -> None:
    job = submit(cluster)
    for step in (
        start(job, n0=8, n1=2),
        move(job, n2=2, n3=2),
        move(job, n4=1),
        move(job, n0=8, n1=1),
        move(job, n1=1, n2=1, n3=1),
    ):
        assert_runs_as_planned(port, port.apply([step]))
    assert reading(port, job).restarts == 4


def test_a_job_moves_within_one_node(cluster: PrivateCluster, port: SlurmPort) -> None:
    """Right after the stop, slurmd would take the job's new credential for the revoked one."""
    job = submit(cluster, script="trap 'exit 85' USR1; sleep 600 & wait")
    assert_runs_as_planned(port, port.apply([start(job, n0=1)]))
    for gpus in (2, 4, 1, 8):
        assert_runs_as_planned(port, port.apply([move(job, n0=gpus)]))


def test_cores_follow_the_gpus(cluster: PrivateCluster, adapter: Adapter) -> None:
    """The job's earlier, larger request must not remain in force."""
    port = SlurmPort(adapter, replace(SETTINGS, cpus_per_gpu=4))
    job = submit(cluster)
    for step, cores in (
        (start(job, n0=8, n1=3), 44),
        (move(job, n2=2, n3=2), 16),
        (move(job, n0=2), 8),
        (move(job, n1=1, n3=1), 8),
    ):
        assert_runs_as_planned(port, port.apply([step]))
        assert int(cluster.run("squeue", "--noheader", "--format=%C", "--job", job)) == cores


def test_a_shape_that_slurm_would_not_give_is_never_released(
    cluster: PrivateCluster, port: SlurmPort
) -> None:
    job = submit(cluster)
    [outcome] = port.apply([start(job, n0=2, n2=4)])  # n0 has 8 free: Slurm would give 5 + 1
    assert outcome.status is OutcomeStatus.FAILED
    assert "n0:8" in outcome.error
    assert reading(port, job).hold is Hold.HOPS
    assert reading(port, job).restarts == 0


def test_taken_gpus_are_not_awaited(cluster: PrivateCluster, port: SlurmPort) -> None:
    foreign = submit(cluster, "--gres=gpu:6", "--nodelist=n0", comment=None)
    wait_until(lambda: port.read().nodes[0].foreign_gpus == 6)
    job, competitor = submit(cluster), submit(cluster)
    outcomes = port.apply([start(job, n0=4), start(competitor, n0=2)])
    assert statuses(outcomes) == [OutcomeStatus.FAILED, OutcomeStatus.DONE]
    assert "not free" in outcomes[0].error
    assert foreign not in {j.id for j in port.read().jobs}


def test_outcomes_are_in_the_order_of_the_steps(cluster: PrivateCluster, port: SlurmPort) -> None:
    first, cancelled_job, third = submit(cluster), submit(cluster), submit(cluster)
    cluster.run("scancel", cancelled_job)
    steps = [start(third, n0=8, n1=1), preempt(cancelled_job), start(first, n2=1), hold(third)]
    outcomes = port.apply([steps[0], steps[1], steps[2]])
    assert [o.step for o in outcomes] == steps[:3]
    assert statuses(outcomes) == [OutcomeStatus.DONE, OutcomeStatus.GONE, OutcomeStatus.DONE]


def test_starts_without_time_left_stay_held_until_the_next_plan(
    cluster: PrivateCluster, port: SlurmPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hopsd.slurm.steps.place._AT_ONCE", 2)
    steps = [start(submit(cluster), n0=1) for _ in range(4)]
    with monkeypatch.context() as patch:
        patch.setattr("hopsd.slurm.apply.RELEASING_SECONDS", 0.0)
        outcomes = port.apply(steps)
    success, put_off = OutcomeStatus.DONE, OutcomeStatus.PUT_OFF
    assert statuses(outcomes) == [success, success, put_off, put_off]
    jobs = {job.id: job for job in cluster.read_jobs()}
    assert all(jobs[step.job].hold is Hold.HOPS for step in steps[2:])
    assert statuses(port.apply(steps[2:])) == [success, success]


def test_an_unknown_job_is_gone(port: SlurmPort) -> None:
    outcomes = port.apply([start(JobId("999999"), n0=1), preempt(JobId("999998"))])
    assert statuses(outcomes) == [OutcomeStatus.GONE, OutcomeStatus.GONE]


def test_a_released_job_starts_by_itself(cluster: PrivateCluster, port: SlurmPort) -> None:
    """It had an uneven placement before, so that all remains of that must be removed."""
    job = submit(cluster)
    port.apply([start(job, n0=8, n1=2)])
    port.apply([preempt(job)])
    [outcome] = port.apply([Step(job, StepKind.RELEASE, gpus=3)])
    assert outcome.status is OutcomeStatus.DONE
    time.sleep(1.1)  # Slurm would wait for two minutes after the requeue
    cluster.run("scontrol", "update", f"jobid={job}", "starttime=now")
    wait_until(lambda: reading(port, job).state is SlurmState.RUNNING)
    assert reading(port, job).allocation.gpus == 3
    assert reading(port, job).released


@pytest.mark.parametrize("placed_before", [False, True])
def test_a_released_job_keeps_its_type_and_memory(
    cluster: PrivateCluster, port: SlurmPort, *, placed_before: bool
) -> None:
    """Slurm refused both: no type after a type (22.05), and memory per GPU without GPUs (26.05)."""
    job = submit(cluster, "--gpus=v100:1", "--mem-per-gpu=100")
    if placed_before:
        assert_runs_as_planned(port, port.apply([start(job, n4=2)]))
        port.apply([preempt(job)])
    [outcome] = port.apply([Step(job, StepKind.RELEASE, gpus=3)])
    assert outcome.status is OutcomeStatus.DONE, outcome
    if placed_before:
        time.sleep(1.1)  # Slurm would wait for two minutes after the requeue
        cluster.run("scontrol", "update", f"jobid={job}", "starttime=now")
    wait_until(lambda: reading(port, job).state is SlurmState.RUNNING)
    [(node, gpus)] = reading(port, job).allocation
    assert (node in ("n4", "n5"), gpus) == (True, 3)
    assert "MemPerTres=gres" in cluster.run("scontrol", "show", "job", job)


def test_a_released_job_larger_than_any_node_starts_by_itself(
    cluster: PrivateCluster, port: SlurmPort
) -> None:
    job = submit(cluster, comment="hops:reqs=10")
    port.apply([Step(job, StepKind.RELEASE, gpus=10, least_nodes=2)])
    wait_until(lambda: reading(port, job).state is SlurmState.RUNNING)
    assert reading(port, job).allocation.gpus == 10


def test_profiling_is_marked_and_unmarked(cluster: PrivateCluster, port: SlurmPort) -> None:
    job = submit(cluster)
    target = Allocation.of({"n0": 1})
    port.apply([Step(job, StepKind.START, target=target, profiling=True)])
    assert reading(port, job).marks == "#hops-profile"
    port.apply([move(job, n1=1)])
    assert reading(port, job).marks == ""

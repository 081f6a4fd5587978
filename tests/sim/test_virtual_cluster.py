"""The virtual cluster: progress, restarts, failures, and which steps it refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sim_cases import cluster, job, workload

from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId, NodeName
from hopsd.model.reading import SlurmState
from hopsd.model.step import OutcomeStatus, Step, StepKind
from hopsd.sim.cluster import BrokenPlanError, ClusterSettings, Failure, VirtualCluster
from hopsd.sim.metrics import holds_by_job


def start(job_id: str, **gpus_by_node: int) -> Step:
    return Step(JobId(job_id), StepKind.START, target=Allocation.of(gpus_by_node))


def virtual(*jobs: object, failures: tuple[Failure, ...] = (), **gpus: int) -> VirtualCluster:
    virtual_cluster = VirtualCluster(
        cluster(**(gpus or {"n0": 4, "n1": 4})),
        workload(list(jobs)),  # type: ignore[arg-type]
        ClusterSettings(restart_seconds=30.0, checkpoint_seconds=100.0),
        failures,
    )
    virtual_cluster.advance(0.0)
    return virtual_cluster


def test_a_job_ends_exactly_when_its_samples_are_done() -> None:
    """1,000 samples at 4 x 1 samples/s take 250 s; the first start costs nothing."""
    port = virtual(job(1, 1000.0, 4))
    port.apply([start("1", n0=4)])
    assert port.next_event == 250.0
    port.advance(250.0)
    [reading] = port.read().jobs
    assert (reading.state, reading.end) == (SlurmState.COMPLETED, 250.0)
    assert port.read().jobs == ()
    assert port.idle_gpus == 8


def test_a_job_pays_for_a_restart_while_it_holds_gpus() -> None:
    """After 100 s on 2 GPUs (200 samples) it moves to 4: 30 s of restart, then 800 / 4 = 200 s."""
    port = virtual(job(1, 1000.0, 2, 4))
    port.apply([start("1", n0=2)])
    port.advance(100.0)
    move = Step(JobId("1"), StepKind.MOVE, Allocation.of({"n0": 2}), Allocation.of({"n0": 4}))
    [outcome] = port.apply([move])
    assert (outcome.status, outcome.actual.gpus) == (OutcomeStatus.DONE, 4)
    assert port.next_event == 330.0
    assert port.read().jobs[0].restarts == 1


def test_a_job_may_have_its_own_restart_time() -> None:
    """As above, with 5 s of restart instead of the cluster's 30 s."""
    port = virtual(replace(job(1, 1000.0, 2, 4), restart_seconds=5.0))
    port.apply([start("1", n0=2)])
    port.advance(100.0)
    port.apply([move("1", n0=4)])
    assert port.next_event == 305.0


def test_two_jobs_change_places_in_one_apply() -> None:
    """Vacating comes before placing, whatever the order of the steps."""
    port = virtual(job(1, 1e6, 4), job(2, 1e6, 4))
    port.apply([start("1", n0=4), start("2", n1=4)])
    port.advance(10.0)
    swap = [
        Step(JobId("1"), StepKind.MOVE, target=Allocation.of({"n1": 4})),
        Step(JobId("2"), StepKind.MOVE, target=Allocation.of({"n0": 4})),
    ]
    assert [o.status for o in port.apply(swap)] == [OutcomeStatus.DONE] * 2
    assert port.idle_gpus == 0


PREEMPT = Step(JobId("1"), StepKind.PREEMPT)


def move(job_id: str, **gpus_by_node: int) -> Step:
    return Step(JobId(job_id), StepKind.MOVE, target=Allocation.of(gpus_by_node))


@pytest.mark.parametrize(
    "plans", [[PREEMPT, start("1", n0=2)], [move("1", n1=2), PREEMPT, start("1", n0=2)]]
)
def test_gpus_released_and_regained_at_one_instant_were_never_lost(plans: list[Step]) -> None:
    """1,000 samples on 2 GPUs from 0 s take 500 s, as if the job had not been touched at 100 s."""
    port = virtual(job(1, 1000.0, 2))
    port.apply([start("1", n0=2)])
    port.advance(100.0)
    for step in plans:
        port.apply([step])
    assert [(c.time, str(c.placement)) for c in port.changes] == [(0.0, "{n0:2}")]
    assert port.read().jobs[0].start == 0.0
    assert port.next_event == 500.0
    port.apply([PREEMPT])
    port.advance(200.0)
    port.apply([start("1", n0=2)])
    assert port.next_event == 200.0 + 30.0 + 400.0


def test_only_the_last_plan_of_an_instant_costs_a_restart() -> None:
    """A first start that is moved or taken back at the same instant causes no restart."""
    port = virtual(job(1, 1000.0, 2, 4))
    port.apply([start("1", n0=2)])
    port.apply([move("1", n1=4)])
    assert port.next_event == 250.0
    port.apply([PREEMPT])
    port.advance(10.0)
    port.apply([start("1", n1=4)])
    assert port.next_event == 260.0
    assert port.read().jobs[0].restarts == 0


def test_a_failed_job_restarts_even_in_place() -> None:
    """At 130 s it falls back to the checkpoint at 100 s: 200 of 1,000 samples, then 30 s."""
    port = virtual(job(1, 1000.0, 2), failures=(Failure(130.0, job=JobId("1")),))
    port.apply([start("1", n0=2)])
    port.advance(130.0)
    port.apply([start("1", n0=2)])
    assert port.next_event == 130.0 + 30.0 + 400.0
    assert [len(holds) for holds in holds_by_job(port.changes).values()] == [2]


@pytest.mark.parametrize(
    ("gpus_by_node", "message"),
    [
        ({"n0": 3}, "give it one of"),
        ({"n0": 2, "n1": 2}, "which has 1"),
        ({"n9": 4}, "not up"),
    ],
)
def test_an_impossible_plan_is_refused(gpus_by_node: dict[str, int], message: str) -> None:
    port = virtual(job(1, 10.0, 4), job(2, 10.0, 3))
    port.apply([start("2", n0=3)])
    with pytest.raises(BrokenPlanError, match=message):
        port.apply([start("1", **gpus_by_node)])


def test_an_ended_job_is_gone_and_a_running_one_stays() -> None:
    port = virtual(job(1, 4.0, 4), job(2, 100.0, 4))
    port.apply([start("1", n0=4), start("2", n1=4)])
    port.advance(1.0)
    outcomes = port.apply([start("1", n0=4), start("2", n0=4)])
    assert [o.status for o in outcomes] == [OutcomeStatus.GONE, OutcomeStatus.UNCHANGED]


def test_a_failed_job_loses_its_training_since_the_last_checkpoint() -> None:
    """At 250 s the last checkpoint was at 200 s: 4 x 200 of 4,000 samples are kept."""
    port = virtual(job(1, 4000.0, 4), failures=(Failure(250.0, job=JobId("1")),))
    port.apply([start("1", n0=4)])
    port.advance(250.0)
    assert port.read().jobs[0].state is SlurmState.PENDING
    port.apply([start("1", n0=4)])
    assert port.next_event == 250.0 + 30.0 + 3200.0 / 4


def test_a_lost_server_vacates_its_jobs_and_comes_back() -> None:
    failure = Failure(50.0, server=NodeName("n0"), seconds=100.0)
    port = virtual(job(1, 4000.0, 4), job(2, 4000.0, 4), failures=(failure,))
    port.apply([start("1", n0=4), start("2", n1=4)])
    port.advance(50.0)
    by_name = {node.name: node for node in port.read().nodes}
    assert not by_name[NodeName("n0")].usable
    assert [j.state for j in port.read().jobs] == [SlurmState.PENDING, SlurmState.RUNNING]
    assert port.idle_gpus == 0
    with pytest.raises(BrokenPlanError, match="not up"):
        port.apply([start("1", n0=4)])
    port.advance(150.0)
    assert port.idle_gpus == 4


def test_a_spread_job_is_as_fast_as_its_slowest_server() -> None:
    load = workload([job(1, 1000.0, 8)], spread=0.5, factor={"n1": 0.5})
    port = VirtualCluster(cluster(n0=4, n1=4), load)
    port.advance(0.0)
    port.apply([start("1", n0=4, n1=4)])
    assert port.next_event == 1000.0 / (8 * 0.5 * 0.5)

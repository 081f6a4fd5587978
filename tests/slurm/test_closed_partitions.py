"""Partitions in which Slurm starts no jobs: hops knows them before it plans."""

from __future__ import annotations

import signal

import pytest
from fixtures_cluster import SLEEPER, running_cluster, submit, wait_until
from memory_store import MemoryStore
from slurm_contract import assert_runs_as_planned, start

from examples.demo.cluster import NodeSpec, PrivateCluster
from hopsd.core.snapshot.build import build_snapshot
from hopsd.core.snapshot.settings import SnapshotSettings
from hopsd.errors import SlurmUnavailableError
from hopsd.model.knowledge import Knowledge
from hopsd.model.plan import RoundInfo
from hopsd.model.reason import ReasonCode
from hopsd.round.observe import observe
from hopsd.slurm.apply import SlurmPort
from hopsd.slurm.parse import bar_reason, closed_partitions, node_readings, records
from hopsd.slurm.scontrol import ScontrolAdapter

CLOSED_PARTITIONS = {"a": "DOWN", "b": "INACTIVE"}
NODE = "NodeName=n0 CPUTot=8 Gres=gpu:t:2 State=IDLE Partitions="


def test_a_draining_partition_still_starts_waiting_jobs() -> None:
    text = "\n".join(
        f"PartitionName={state.lower()} State={state}"
        for state in ("UP", "DOWN", "DRAIN", "INACTIVE")
    )
    assert closed_partitions(records(text)) == {"down": "DOWN", "inactive": "INACTIVE"}


@pytest.mark.parametrize(
    ("partition", "reason"),
    [
        ("main", ""),
        ("a", "partition a is DOWN: Slurm starts none of its jobs"),
        ("a,main", ""),
        ("a,b", "partition a is DOWN and partition b is INACTIVE: Slurm starts none of its jobs"),
    ],
)
def test_a_job_is_held_back_only_if_all_its_partitions_are_closed(
    partition: str, reason: str
) -> None:
    assert bar_reason(partition, CLOSED_PARTITIONS) == reason


@pytest.mark.parametrize(
    ("partitions", "open_", "usable"),
    [("main", ("main",), True), ("a,main", ("main",), True), ("a,b", (), False)],
)
def test_a_node_accepts_jobs_of_its_open_partitions_only(
    partitions: str, open_: tuple[str, ...], usable: bool
) -> None:
    ((node,), _) = node_readings(records(NODE + partitions), (), CLOSED_PARTITIONS)
    assert (node.partitions, node.usable) == (open_, usable)


@pytest.mark.parametrize(
    ("partition", "open_", "usable"), [("a", (), False), ("main", ("main",), True)]
)
def test_a_node_accepts_no_jobs_of_partitions_outside_hops(
    partition: str, open_: tuple[str, ...], usable: bool
) -> None:
    """hopsd would no longer see a job that moves to another partition."""
    ((node,), _) = node_readings(records(NODE + "a,c,main"), (partition,), CLOSED_PARTITIONS)
    assert (node.partitions, node.usable) == (open_, usable)
    assert not node_readings(records(NODE + "c"), (partition,), CLOSED_PARTITIONS)[0]


@pytest.mark.live
def test_jobs_of_a_partition_that_is_down_wait_or_continue(cluster: PrivateCluster) -> None:
    port = SlurmPort(ScontrolAdapter(cluster.commands()))
    waits, runs = submit(cluster), submit(cluster, script=SLEEPER)
    assert_runs_as_planned(port, port.apply([start(runs, n0=2)]))
    cluster.run("scontrol", "update", "partitionname=main", "state=down")
    try:
        observation = observe(port, MemoryStore(), 8)
    finally:
        cluster.run("scontrol", "update", "partitionname=main", "state=up")
    assert observation.errors[waits].code is ReasonCode.HELD
    assert observation.errors[waits].text == "partition main is DOWN: Slurm starts none of its jobs"
    info = RoundInfo(first=True, seconds=60.0)
    build = build_snapshot(
        observation.reading,
        observation.records,
        observation.comments,
        Knowledge(),
        info,
        SnapshotSettings(),
    )
    assert runs in build.pinned_jobs
    assert not build.snapshot.nodes
    assert waits in observe(port, MemoryStore(), 8).comments


@pytest.mark.live
def test_a_node_without_slurmd_after_a_restart_of_slurmctld_gets_no_job() -> None:
    """Slurm shows it as MIXED if a job runs there; a job placed on it would get no GPU (22.05)."""
    with running_cluster(nodes=[NodeSpec("v100")] * 2) as cluster:
        adapter = ScontrolAdapter(cluster.commands())
        job = submit(cluster, script=SLEEPER)
        port = SlurmPort(adapter)
        assert_runs_as_planned(port, port.apply([start(job, n0=2)]))
        cluster.stop_slurmd("n0", signal.SIGKILL)
        cluster.stop_slurmctld()
        cluster.start_slurmctld()
        wait_until(lambda: "State=IDLE" in cluster.run("scontrol", "show", "node", "n1", "-o"))
        with pytest.raises(SlurmUnavailableError, match="n0"):
            adapter.read()
        cluster.start_slurmd("n0")
        wait_until(lambda: _all_usable(adapter))


def _all_usable(adapter: ScontrolAdapter) -> bool:
    try:
        return all(node.usable for node in adapter.read().nodes)
    except SlurmUnavailableError:  # a node has not registered yet
        return False

"""CPUs that stand in for GPUs are ordinary GRES to Slurm: placed, read and given back like them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from fixtures_cluster import running_cluster, submit, wait_until
from slurm_contract import SETTINGS, assert_runs_as_planned, make_adapter, move, reading, start

from examples.demo.cluster import NodeSpec, PrivateCluster
from hopsd.model.ids import NodeName
from hopsd.model.reading import SlurmState
from hopsd.model.step import OutcomeStatus, Step, StepKind
from hopsd.slurm.adapter import Adapter
from hopsd.slurm.apply import SlurmPort

pytestmark = pytest.mark.live

NODES = [
    NodeSpec("cpu", gpus=2, cpus=9),
    NodeSpec("cpu", gpus=2, cpus=9),
    NodeSpec("rtx3090", gpus=2, cpus=8),
]


@pytest.fixture(scope="module")
def cpu_cluster() -> Iterator[PrivateCluster]:
    with running_cluster(nodes=NODES) as cluster:
        yield cluster


@pytest.fixture(params=["scontrol", "pyslurm"])
def adapter(request: pytest.FixtureRequest, cpu_cluster: PrivateCluster) -> Adapter:
    return make_adapter(request.param, cpu_cluster)


@pytest.fixture
def port(adapter: Adapter) -> SlurmPort:
    return SlurmPort(adapter, replace(SETTINGS, cpus_per_gpu=2))


def test_cpus_run_in_every_shape_with_their_own_cores(
    cpu_cluster: PrivateCluster, port: SlurmPort
) -> None:
    """Each CPU has four of its node's nine cores, one of which is kept; a GPU has two cores."""
    assert [(n.gpu_type, n.gpus, n.cores) for n in port.read().nodes] == [
        ("cpu", 2, 9), ("cpu", 2, 9), ("rtx3090", 2, 8),
    ]  # fmt: skip
    job, small = (submit(cpu_cluster, comment="hops:reqs=1-4;cpu=yes") for _ in range(2))
    for step, cores in (
        (start(job, n0=1), 4),
        (move(job, n0=2, n1=1), 12),
        (move(job, n0=2, n1=2), 16),
        (move(job, n2=2), 4),
        (move(job, n0=1, n1=1), 8),
        (move(job, n1=2), 8),
    ):
        assert_runs_as_planned(port, port.apply([step]))
        assert int(cpu_cluster.run("squeue", "--noheader", "--format=%C", "--job", job)) == cores
    assert_runs_as_planned(port, port.apply([move(job, n0=1), start(small, n0=1)]))
    cpu_cluster.run("scancel", job, small)


def test_cpus_of_plain_jobs_count_as_taken(cpu_cluster: PrivateCluster, adapter: Adapter) -> None:
    job = submit(cpu_cluster, "--gres=gpu:cpu:2", "--nodelist=n1", comment=None)
    wait_until(lambda: [n.foreign_gpus for n in adapter.read().nodes] == [0, 2, 0], 10)
    cpu_cluster.run("scancel", job)


def test_a_released_job_keeps_off_the_nodes_that_it_refuses(
    cpu_cluster: PrivateCluster, port: SlurmPort
) -> None:
    job = submit(cpu_cluster, comment="hops:reqs=1")
    avoid = (NodeName("n0"), NodeName("n1"))
    [outcome] = port.apply([Step(job, StepKind.RELEASE, gpus=1, avoid=avoid)])
    assert outcome.status is OutcomeStatus.DONE
    wait_until(lambda: reading(port, job).state is SlurmState.RUNNING, 10)
    assert reading(port, job).allocation.as_dict() == {"n2": 1}
    cpu_cluster.run("scancel", job)

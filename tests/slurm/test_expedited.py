"""Slurm's expedited requeue (25.11 and later) of a job that hops placed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fixtures_cluster import as_user, running_cluster, skip_without_slurm, wait_until

from examples.demo.cluster import NodeSpec, PrivateCluster, slurm_release
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.model.reading import Hold, JobReading, SlurmState
from hopsd.model.step import OutcomeStatus, Step, StepKind
from hopsd.slurm.apply import SlurmPort
from hopsd.slurm.scontrol import ScontrolAdapter
from hopsd.slurm.watch import ApplySettings

pytestmark = [pytest.mark.live, pytest.mark.slow]


@pytest.fixture
def cluster() -> Iterator[PrivateCluster]:
    skip_without_slurm()
    if slurm_release() < (25, 11):
        pytest.skip("Slurm before 25.11 has no expedited requeue")
    nodes = [NodeSpec("a100", gpus=2), NodeSpec("a100", gpus=2)]
    conf = ["SlurmctldParameters=enable_expedited_requeue"]
    with running_cluster(nodes=nodes, extra_conf=conf) as private_cluster:
        yield private_cluster


def test_the_job_waits_for_hops_to_place_it_elsewhere(cluster: PrivateCluster) -> None:
    """Slurm alone would keep the lost node for the job and start it there without hops' hold."""
    result = as_user(
        cluster, None, "sbatch", "--parsable", "--output=/dev/null", "--requeue=expedite",
        "--comment=hops:reqs=2", "--wrap=sleep 600",
    )  # fmt: skip
    assert "ignored, since hops chooses GPUs and nodes: --requeue=expedite" in result.stderr
    job = JobId(result.stdout.strip())
    port = SlurmPort(ScontrolAdapter(cluster.commands()), ApplySettings())

    def reading() -> JobReading:
        (job_reading,) = [candidate for candidate in port.read().jobs if candidate.id == job]
        return job_reading

    def start(node: str) -> None:
        (outcome,) = port.apply([Step(job, StepKind.START, target=Allocation.of({node: 2}))])
        assert outcome.status is OutcomeStatus.DONE, outcome.error

    start("n0")
    cluster.run("scontrol", "update", "nodename=n0", "state=down", "reason=test")
    wait_until(lambda: reading().restarts == 1 and reading().state is SlurmState.PENDING)
    port.apply([Step(job, StepKind.HOLD)])
    assert reading().hold is Hold.HOPS
    start("n1")
    assert reading().allocation == Allocation.of({"n1": 2})

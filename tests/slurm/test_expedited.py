"""Slurm's expedited requeue (25.11 and later) of a job that hops placed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fixtures_cluster import running_cluster, skip_without_slurm, submit, wait_until

from examples.demo.cluster import NodeSpec, PrivateCluster, slurm_release
from hopsd.model.allocation import Allocation
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
    with running_cluster(nodes=nodes, extra_conf=conf) as made:
        yield made


def test_slurm_starts_the_job_again_where_it_ran_and_hops_reads_it_there(
    cluster: PrivateCluster,
) -> None:
    """Slurm keeps the nodes for the job, and starts it there without hops' hold in between."""
    job = submit(cluster, "--requeue=expedite", comment="hops:reqs=2", script="sleep 600")
    port = SlurmPort(ScontrolAdapter(cluster.commands()), ApplySettings())

    def reading() -> JobReading:
        (found,) = [each for each in port.read().jobs if each.id == job]
        return found

    here = Allocation.of({"n0": 2})
    (outcome,) = port.apply([Step(job, StepKind.START, target=here)])
    assert outcome.status is OutcomeStatus.DONE, outcome.error
    cluster.run("scontrol", "update", "nodename=n0", "state=down", "reason=test")
    wait_until(lambda: reading().restarts == 1)
    wait_until(lambda: reading().state is SlurmState.RUNNING)
    assert (reading().allocation, reading().hold) == (here, Hold.NONE)

"""On a live site, hops knows what partitions and plain jobs leave before it tries a start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from daemon_site import Site
from fixtures_accounting import ALICE, BOB, uid_of
from fixtures_cluster import SAVER, submit, wait_until
from operator_site import operator_site

from examples.demo.cluster import NodeSpec
from hopsd.model.ids import JobId
from hopsd.model.reading import JobReading, SlurmState

pytestmark = pytest.mark.live

NODES = [NodeSpec("rtx3090", gpus=4, cpus=8, memory_mb=8000)] * 3
CONF = ["SelectTypeParameters=CR_Core_Memory"]


@pytest.fixture
def site(database: str) -> Iterator[Site]:
    with operator_site(database, NODES, CONF) as site:
        site.cluster.run("scontrol", "create", "PartitionName=debug", "Nodes=n0", "State=UP")
        site.cluster.run(
            "scontrol", "create", "PartitionName=one", "Nodes=ALL", "MaxNodes=1", "State=UP"
        )
        site.hopsd.start()
        yield site


def read(site: Site, job: JobId) -> JobReading:
    [job_reading] = [j for j in site.cluster.read_jobs() if j.id == job]
    return job_reading


def nodes_of(site: Site, job: JobId) -> tuple[str, ...]:
    """Nodes on which the job runs; none while it waits."""
    job_reading = read(site, job)
    return job_reading.allocation.nodes if job_reading.state is SlurmState.RUNNING else ()


def reason(site: Site, job: JobId) -> str:
    status = site.hopsd.wait_for(lambda s: any(row["id"] == job for row in s["waiting"]))
    [row] = [row for row in status["waiting"] if row["id"] == job]
    return str(row["reason"])


@pytest.mark.long
def test_a_held_job_in_a_smaller_partition_blocks_nobody_else(site: Site) -> None:
    cluster = site.cluster
    submit(cluster, "--hold", "--partition=debug", comment="hops:reqs=4", uid=uid_of(BOB))
    small_partition_job = submit(cluster, "--partition=one", comment="hops:reqs=8", uid=uid_of(BOB))
    assert "partition one, 1 node of one job: at most 4 GPUs" in reason(site, small_partition_job)
    twelve = submit(
        # Slurm tries debug first, which lacks two of the nodes.
        *(cluster, "--partition=debug,main"),
        script=SAVER,
        comment="hops:reqs=12",
        uid=uid_of(ALICE),
    )
    wait_until(lambda: nodes_of(site, twelve) == ("n0", "n1", "n2"))
    cluster.run("scontrol", "requeuehold", twelve)
    # Until its processes have ended, it is still in the partition that it ran in.
    wait_until(lambda: read(site, twelve).state is SlurmState.PENDING)
    assert read(site, twelve).partition == "debug,main"


@pytest.mark.long
def test_cores_and_memory_of_plain_jobs_are_not_used(site: Site) -> None:
    cluster, alice = site.cluster, uid_of(ALICE)
    plain_job = submit(
        *(cluster, "--nodelist=n0", "--cpus-per-task=7", "--mem=500"), comment=None, uid=uid_of(BOB)
    )
    large = submit(cluster, "--nodelist=n1", "--mem=7000", comment=None, uid=uid_of(BOB))
    running = ("squeue", "--noheader", "--states=running", "--format=%A")
    wait_until(lambda: set(cluster.run(*running).split()) == {large, plain_job})
    four = submit(cluster, "--mem=4000", script=SAVER, comment="hops:reqs=4", uid=alice)
    two = submit(
        *(cluster, "--gpus=2", "--cpus-per-gpu=3", "--mem-per-gpu=200"),
        script=SAVER,
        comment="hops:reqs=2",
        uid=alice,
    )
    wait_until(lambda: all(nodes_of(site, job) for job in (four, two)))
    assert (nodes_of(site, four), nodes_of(site, two)) == (("n2",), ("n1",))
    memory_job = submit(cluster, "--mem=4000", script=SAVER, comment="hops:reqs=2", uid=alice)
    assert "2 GPUs" in reason(site, memory_job)
    status = site.hopsd.status()
    assert not [step for step in status["round"]["steps"] if step["status"] == "failed"]


@pytest.mark.long
def test_jobs_that_share_a_server_start_in_sequence(site: Site) -> None:
    """Two jobs of six fit on three nodes only as 4+2 and 2+4; Slurm fills the second one's nodes
    like that once the first one runs.
    """
    sixes = [
        submit(site.cluster, script=SAVER, comment="hops:reqs=6", uid=uid_of(user))
        for user in (ALICE, BOB)
    ]
    wait_until(lambda: all(nodes_of(site, job) for job in sixes))
    placements = [read(site, job).allocation.as_dict() for job in sixes]
    assert sorted(placements, key=min) == [{"n0": 4, "n1": 2}, {"n1": 2, "n2": 4}]
    assert not [s for s in site.hopsd.status()["round"]["steps"] if s["status"] == "failed"]

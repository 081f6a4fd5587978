"""Nodes that Slurm switches off when idle, such as cloud nodes: it wakes them for a job."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from fixtures_cluster import SLEEPER, node_states, running_cluster, submit, wait_until
from slurm_contract import SETTINGS, assert_runs_as_planned, make_adapter, reading, start

from examples.demo.cluster import NodeSpec, PrivateCluster
from hopsd.model.reading import SlurmState
from hopsd.slurm.apply import SlurmPort

pytestmark = pytest.mark.live

POWER = ["SuspendProgram=/bin/true", "ResumeProgram=/bin/true", "SuspendTime=86400"]


@pytest.fixture
def saving() -> Iterator[PrivateCluster]:
    conf = [*POWER, "SuspendTimeout=1", "ResumeTimeout=300"]
    with running_cluster(nodes=[NodeSpec("a100", 4)] * 2, extra_conf=conf) as cluster:
        yield cluster


def test_a_node_that_is_switched_off_is_woken_for_a_job(saving: PrivateCluster) -> None:
    port = SlurmPort(make_adapter("scontrol", saving), SETTINGS)
    saving.run("scontrol", "update", "nodename=n1", "state=power_down_force")
    saving.stop_slurmd("n1")
    wait_until(lambda: "POWERED_DOWN" in saving.run("scontrol", "show", "node", "n1"))
    wait_until(lambda: next(n for n in port.read().nodes if n.name == "n1").usable)
    job = submit(saving, script=SLEEPER)
    assert_runs_as_planned(port, port.apply([start(job, n1=2)]))
    # Times are whole seconds: a node must boot clearly after Slurm's request to count as woken by
    # it.
    wait_until(lambda: "POWERING_UP" in saving.run("scontrol", "show", "node", "n1"))
    seen_at = time.time()
    wait_until(lambda: time.time() >= seen_at + 2.0)
    saving.start_slurmd("n1", fresh_boot=True)
    wait_until(
        lambda: node_states(saving)["n1"] == "mixed",
        describe=lambda: "".join(saving.run("scontrol", "show", kind) for kind in ("node", "job")),
    )
    assert reading(port, job).state is SlurmState.RUNNING
    assert reading(port, job).allocation.as_dict() == {"n1": 2}

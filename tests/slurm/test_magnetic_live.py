"""Magnetic reservations, in which Slurm also starts jobs that do not name them."""

from __future__ import annotations

import pytest
from fixtures_cluster import running_cluster, submit, wait_until
from slurm_contract import SETTINGS, assert_runs_as_planned, preempt, reading, start

from examples.demo.cluster import NodeSpec
from hopsd.model.reading import SlurmState
from hopsd.slurm.apply import SlurmPort
from hopsd.slurm.scontrol import ScontrolAdapter

pytestmark = pytest.mark.live


@pytest.mark.parametrize("scheduler", ["backfill", "builtin"])
def test_a_job_starts_in_a_magnetic_reservation_that_admits_its_user(scheduler: str) -> None:
    """With sched/builtin, Slurm starts no job there that names its nodes."""
    nodes, conf = [NodeSpec("a100", gpus=2, cpus=4)] * 2, [f"SchedulerType=sched/{scheduler}"]
    with running_cluster(nodes=nodes, extra_conf=conf) as cluster:
        port = SlurmPort(ScontrolAdapter(cluster.commands()), SETTINGS)
        job = submit(cluster, "--time=5")
        owner = reading(port, job).user
        for node, user in (("n0", owner), ("n1", "games")):
            words = f"nodes={node} starttime=now duration=60 flags=magnetic users={user}"
            cluster.run(
                "scontrol", "create", "reservation", f"reservationname={user}", *words.split()
            )
        if scheduler == "builtin":
            assert reading(port, job).magnetic == ()
            return
        assert reading(port, job).magnetic == (owner,)
        assert_runs_as_planned(port, port.apply([start(job, n0=2)]))
        port.apply([preempt(job)])
        wait_until(lambda: reading(port, job).state is SlurmState.PENDING)
        assert reading(port, job).reservation == ""

"""Slurm's own estimate of a start, from a live cluster."""

from __future__ import annotations

import pytest
from fixtures_cluster import submit, wait_until

from examples.demo.cluster import PrivateCluster
from hopsd.slurm.command import SlurmCommands
from hopsd.slurm.probe.plain_start import plain_start

pytestmark = pytest.mark.live


def test_a_plain_job_starts_when_the_limits_of_others_end(cluster: PrivateCluster) -> None:
    """8 GPUs of each node n0 to n3 are taken for an hour; nothing is submitted."""
    job = submit(cluster, "--nodes=4", "--gpus-per-node=rtx3090:8", "--time=60", comment=None)
    state = ("squeue", "--noheader", "--format=%T %S", "--jobs", job)
    wait_until(lambda: cluster.run(*state).startswith("RUNNING"))
    commands = SlurmCommands(environment=cluster.env)
    v100_start = plain_start(commands, ["--gpus=v100:1"])
    later = plain_start(commands, ["--gpus=rtx3090:8", "--nodes=1"])
    assert v100_start is not None
    assert later is not None
    assert 3500.0 < later - v100_start < 3700.0
    assert plain_start(commands, ["--gpus=rtx3090:64"]) is None
    assert cluster.run("squeue", "--noheader", "--format=%A").split() == [job]

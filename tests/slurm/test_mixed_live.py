"""A node with GPUs of two types, as with some GPUs in MIG profiles."""

from __future__ import annotations

import pytest
from fixtures_cluster import SLEEPER, clean, running_cluster, submit, wait_until
from slurm_contract import SETTINGS, make_adapter, move, reading, start

from examples.demo.cluster import NodeSpec
from hopsd.model.allocation import Allocation
from hopsd.model.ids import NodeName
from hopsd.model.step import OutcomeStatus, Step
from hopsd.slurm.apply import SlurmPort

pytestmark = pytest.mark.live

NODES = [NodeSpec("a100", gpus=4, gres=("gpu:1g.10gb:3",)), NodeSpec("v100", gpus=4)]
FOUR = "/dev/null,/dev/zero,/dev/full,/dev/random"
GRES = f"""AutoDetect=off
NodeName=n0 Name=gpu Type=a100 File={FOUR}
NodeName=n0 Name=gpu Type=1g.10gb File=/dev/urandom,/dev/tty,/dev/ptmx
NodeName=n1 Name=gpu Type=v100 File={FOUR}
"""
BIG, SLICE, OTHER_NODE = NodeName("n0/a100"), NodeName("n0/1g.10gb"), NodeName("n1")


def test_each_type_is_a_separate_node() -> None:
    with running_cluster(nodes=NODES, extra_files={"gres.conf": GRES}) as cluster:
        adapter = make_adapter("scontrol", cluster)
        port = SlurmPort(adapter, SETTINGS)

        def carry_out(*steps: Step) -> None:
            for outcome in port.apply(list(steps)):
                assert outcome.status is OutcomeStatus.DONE, outcome.error
                job_reading = reading(adapter, outcome.step.job)
                assert job_reading.allocation == outcome.step.target
                assert (
                    sum(map(len, job_reading.gpu_indices.values())) == job_reading.allocation.gpus
                )

        # A job that names no type gets GPUs of both types from Slurm, as many as it asks for.
        submit(cluster, "--gres=gpu:5", "--nodelist=n0", script=SLEEPER, comment=None)
        wait_until(lambda: cluster.run("squeue", "-h", "-o", "%T").split() == ["RUNNING"])
        nodes = {node.name: node for node in adapter.read().nodes}
        assert [(n.name, n.gpus, n.foreign_gpus) for n in nodes.values()] == [
            (SLICE, 3, 1),
            (BIG, 4, 4),
            (OTHER_NODE, 4, 0),
        ]
        assert all(node.usable for node in nodes.values())
        clean(cluster)
        slice_job = submit(cluster, "--gres=gpu:1g.10gb:1", script=SLEEPER)
        carry_out(start(slice_job, **{SLICE: 2}))
        big = submit(cluster, "--gres=gpu:a100:1", script=SLEEPER)
        carry_out(start(big, **{BIG: 3}), move(slice_job, **{SLICE: 1}))
        free = submit(cluster, script=SLEEPER)
        carry_out(start(free, **{OTHER_NODE: 2}))
        if not nodes[BIG].by_type:
            carry_out(move(free, **{SLICE: 2}))
            carry_out(move(free, **{BIG: 1}))
            carry_out(move(free, **{OTHER_NODE: 3}))
        assert reading(adapter, big).allocation == Allocation.of({BIG: 3})
        clean(cluster)

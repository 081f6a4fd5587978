"""Past runs out of a live slurmdbd."""

from __future__ import annotations

import pytest
from fixtures_accounting import ALICE, accounting_cluster, uid_of
from fixtures_cluster import submit, wait_until

from examples.demo.cluster import NodeSpec
from hopsd.slurm.accounting.past_runs import read_past_runs

pytestmark = pytest.mark.live


def test_a_plain_job_is_read_out_of_the_accounting() -> None:
    with accounting_cluster([NodeSpec("a100", gpus=4, cpus=8)]) as cluster:
        job = submit(
            cluster,
            "--job-name=a|b",
            "--gres=gpu:2",
            script="sleep 8",  # Slurm gives the accounting a job's name within 5 s of its start
            comment=None,
            uid=uid_of(ALICE),
        )
        commands = cluster.commands()
        wait_until(lambda: [run.name for run in read_past_runs(commands, days=1)] == ["a|b"])
        (record,) = read_past_runs(commands, days=1)
    assert (record.id, record.user, record.account, record.name) == (job, ALICE, "lab", "a|b")
    assert record.run_seconds >= 1.0
    assert record.attained_gpu_seconds == 2 * record.run_seconds
    assert record.end is not None
    assert record.submit <= record.end - record.run_seconds

"""Live: a repeated script is recognised as the same training, a changed one is not."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest
from fixtures_cluster import as_user, submit

from examples.demo.cluster import PrivateCluster
from hopsd.core.submission.workload import workload_of
from hopsd.model.ids import JobId, WorkloadName
from hopsd.slurm.command import ScontrolSession
from hopsd.slurm.scontrol import ScontrolAdapter

pytestmark = pytest.mark.live


def workloads(adapter: ScontrolAdapter) -> dict[JobId, WorkloadName]:
    return {job.id: workload_of(job) for job in adapter.read().jobs}


def batch(cluster: PrivateCluster, script: Path, *arguments: str) -> JobId:
    options = ("--parsable", "--output=/dev/null", "--comment=hops:reqs=1")
    result = as_user(cluster, None, "sbatch", *options, str(script), *arguments)
    assert result.returncode == 0, result.stderr
    return JobId(result.stdout.strip())


def test_a_repeated_script_is_recognised_and_a_changed_one_is_new(
    cluster: PrivateCluster, tmp_path: Path
) -> None:
    script = tmp_path / "train.sh"
    script.write_text("#!/bin/bash\nsleep 600\n")
    first, repetition = batch(cluster, script), batch(cluster, script)
    other_arguments = batch(cluster, script, "--model", "vgg")
    script.write_text("#!/bin/bash\nsleep 601\n")
    changed_script = batch(cluster, script)
    workload_by_job = workloads(ScontrolAdapter(cluster.commands()))
    assert workload_by_job[first] == workload_by_job[repetition]
    assert workload_by_job[first].startswith(f"{getpass.getuser()}/train.sh/train.sh@")
    assert (
        len(
            {
                workload_by_job[first],
                workload_by_job[other_arguments],
                workload_by_job[changed_script],
            }
        )
        == 3
    )


def test_a_restart_is_the_same_training(cluster: PrivateCluster) -> None:
    adapter = ScontrolAdapter(cluster.commands())
    job = submit(cluster, "--job-name=resnet", script="sleep 600")
    before = workloads(adapter)[job]
    cluster.run("scontrol", "hold", job)
    cluster.run("scontrol", "update", f"jobid={job}", "comment=hops:reqs=1,2")
    assert workloads(adapter)[job] == before
    assert workloads(ScontrolAdapter(cluster.commands()))[job] == before


def test_a_user_given_name_requires_no_script(cluster: PrivateCluster) -> None:
    job = submit(cluster, comment="hops:reqs=1;workload=resnet50", script="sleep 600")
    adapter = ScontrolAdapter(cluster.commands())
    assert workloads(adapter)[job] == "resnet50"
    assert [reading.script for reading in adapter.read().jobs if reading.id == job] == [""]


def test_each_script_is_requested_once(
    cluster: PrivateCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[str] = []
    adapter = ScontrolAdapter(cluster.commands())
    run = ScontrolSession.run

    def record_and_run(self: ScontrolSession, *words: str) -> None:
        commands.extend(words[2:3] if words[0] == "write" else ())
        run(self, *words)

    monkeypatch.setattr(ScontrolSession, "run", record_and_run)
    jobs = [submit(cluster, script=f"sleep {600 + n}") for n in range(3)]
    for _ in range(3):
        workload_by_job = workloads(adapter)
        assert len({workload_by_job[job] for job in jobs}) == 3
    assert len(commands) == len(set(commands))
    assert set(jobs) <= set(commands)

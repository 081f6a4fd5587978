"""What the pyslurm adapter does itself, and what it leaves to Slurm's commands."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest
from fixtures_cluster import running_cluster, submit, wait_until
from slurm_contract import SETTINGS, assert_runs_as_planned, make_adapter, move, reading, start

from examples.demo.cluster import NodeSpec, PrivateCluster
from hopsd.errors import SlurmError, SlurmUnavailableError
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.model.reading import Hold
from hopsd.slurm.adapter import Placement, SignalScope
from hopsd.slurm.apply import SlurmPort
from hopsd.slurm.command import SlurmCommands
from hopsd.slurm.pyslurm_adapter import PyslurmAdapter, load_pyslurm
from hopsd.slurm.scontrol import ScontrolAdapter

pytestmark = pytest.mark.live


@pytest.fixture
def pyslurm(cluster: PrivateCluster) -> PyslurmAdapter:
    adapter = make_adapter("pyslurm", cluster)
    assert isinstance(adapter, PyslurmAdapter)
    return adapter


def test_single_requests_run_no_command(
    cluster: PrivateCluster, pyslurm: PyslurmAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submit(cluster)
    pyslurm.place(Placement(job, Allocation.of({"n2": 1})))  # asks for the release once

    def no_commands(self: SlurmCommands, *arguments: str) -> str:
        raise AssertionError(f"ran {arguments}")

    monkeypatch.setattr(SlurmCommands, "run", no_commands)
    pyslurm.place(Placement(job, Allocation.of({"n1": 3}), comment="hops:reqs=1 #hops-x #hops-y"))
    pyslurm.hold(job)
    monkeypatch.undo()
    job_reading = reading(pyslurm, job)
    assert (job_reading.hold, job_reading.marks) == (Hold.HOPS, "#hops-x #hops-y")
    pyslurm.place(Placement(job, Allocation.of({"n1": 3}), comment="hops:reqs=1"))
    assert reading(pyslurm, job).marks == ""


def test_refusals_contain_slurms_words(cluster: PrivateCluster, pyslurm: PyslurmAdapter) -> None:
    job, unknown_job = submit(cluster), JobId("999999")
    with pytest.raises(SlurmError, match="update 999999: Invalid job id"):
        pyslurm.hold(unknown_job)
    pyslurm.place(Placement(job, Allocation.of({"n0": 1})))
    with pytest.raises(SlurmError, match="Invalid job id"):
        pyslurm.release([unknown_job, job])
    assert reading(pyslurm, job).hold is Hold.NONE  # one refusal does not block the others
    with pytest.raises(SlurmError, match="Invalid job id"):
        pyslurm.place(Placement(unknown_job, Allocation.of({"n0": 1})))
    with pytest.raises(SlurmError, match="SIGNOTHING"):
        pyslurm.signal(job, "NOTHING", SignalScope.BATCH)


def test_an_outage_is_distinguished_from_a_refusal(pyslurm: PyslurmAdapter, tmp_path: Path) -> None:
    with running_cluster(nodes=[NodeSpec("v100")]) as cluster:
        job = submit(cluster)
        adapter = make_adapter("pyslurm", cluster)
        cluster.stop_slurmctld(signal_number=signal.SIGKILL)
        with pytest.raises(SlurmUnavailableError):
            adapter.read()
        with pytest.raises(SlurmUnavailableError):
            adapter.hold(job)


def test_gpus_requested_without_the_plugin_are_cleared(pyslurm: PyslurmAdapter) -> None:
    """modify() cannot clear --gpus, and Slurm refuses another request beside it."""
    with running_cluster(nodes=[NodeSpec("v100")] * 2, plugin=False) as cluster:
        port = SlurmPort(make_adapter("pyslurm", cluster), replace(SETTINGS, grace_seconds=1.0))
        job = submit(cluster, "--hold", "--gpus=1", script="sleep 600")
        assert_runs_as_planned(port, port.apply([start(job, n0=2)]))
        assert_runs_as_planned(port, port.apply([move(job, n1=4)]))


def test_pyslurm_loads_only_where_it_can_reach_slurm(
    pyslurm: PyslurmAdapter, tmp_path: Path
) -> None:
    environment = {"SLURM_CONF": str(tmp_path / "slurm.conf")}
    missing = SlurmCommands(timeout_seconds=3.0, environment=environment)
    with pytest.raises(SlurmError, match="pyslurm does not load"):
        load_pyslurm(missing)


def test_pyslurm_reads_what_the_commands_read(pyslurm: PyslurmAdapter) -> None:
    """This includes GRES counts that pyslurm itself cannot read."""
    nodes = [NodeSpec("a100", features=("hbm", "ib"), gres=("VRAM:40G",))]
    with running_cluster(nodes=nodes, extra_conf=["GresTypes=gpu,VRAM"]) as cluster:
        adapters = [make_adapter("pyslurm", cluster), ScontrolAdapter(cluster.commands())]
        options = ["--constraint=hbm&ib", "--mem=2G", "--time=9", "--ntasks-per-node=2"]
        for gres, comment in (("gpu:2", "hops:reqs=2"), ("gpu:1,VRAM:12G", None)):
            job = submit(cluster, f"--gres={gres}", *options, comment=comment)
            by_pyslurm, by_commands = (adapter.read() for adapter in adapters)
            assert by_pyslurm.nodes == by_commands.nodes
            assert by_pyslurm.jobs == by_commands.jobs
        wait_until(lambda: "RUNNING" in cluster.run("squeue", "-h", "-o", "%T", "--job", job))
        assert [node.foreign_gpus for node in adapters[0].read().nodes] == [1]

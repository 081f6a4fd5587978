"""What Slurm does behind a scheduler's back, shown on a live cluster, and how hops handles it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fixtures_cluster import (
    NOBODY,
    SLEEPER,
    as_user,
    clean,
    running_cluster,
    submit,
    wait_until,
)
from slurm_contract import (
    SETTINGS,
    assert_runs_as_planned,
    hold,
    make_adapter,
    move,
    preempt,
    reading,
    start,
    statuses,
)

from examples.demo.cluster import PLUGIN, NodeSpec, PrivateCluster, slurm_release
from hopsd.model.ids import JobId
from hopsd.model.reading import Hold, SlurmState
from hopsd.model.step import OutcomeStatus
from hopsd.slurm.adapter import Adapter
from hopsd.slurm.apply import SlurmPort

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def module_cluster() -> Iterator[PrivateCluster]:
    """No submit plugin: jobs are as their users submitted them, held by --hold."""
    with running_cluster(nodes=[NodeSpec("rtx3090")] * 3, plugin=False) as cluster:
        yield cluster


@pytest.fixture
def bare(module_cluster: PrivateCluster) -> Iterator[PrivateCluster]:
    yield module_cluster
    clean(module_cluster)


@pytest.fixture(params=["scontrol", "pyslurm"])
def bare_port(request: pytest.FixtureRequest, bare: PrivateCluster) -> SlurmPort:
    return SlurmPort(make_adapter(request.param, bare), SETTINGS)


def test_nice_starts_an_unguarded_job(bare: PrivateCluster, bare_port: SlurmPort) -> None:
    job = submit(bare, "--hold", uid=NOBODY)
    assert as_user(bare, NOBODY, "scontrol", "update", f"jobid={job}", "nice=5").returncode == 0
    wait_until(lambda: reading(bare_port, job).state is SlurmState.RUNNING)
    [outcome] = bare_port.apply([hold(job)])
    assert outcome.status is OutcomeStatus.FAILED  # the outcome says so, and the job is not stopped
    assert reading(bare_port, job).state is SlurmState.RUNNING


@pytest.mark.parametrize("change", [["nice=5"], ["priority=9"], ["reqnodelist=n5"]])
def test_an_owner_cannot_start_a_guarded_job(
    cluster: PrivateCluster, port: SlurmPort, change: list[str]
) -> None:
    job = submit(cluster, uid=NOBODY)
    assert as_user(cluster, NOBODY, "scontrol", "update", f"jobid={job}", *change).returncode
    as_user(cluster, NOBODY, "scontrol", "release", job)
    time.sleep(1.0)
    assert reading(port, job).hold is Hold.HOPS


def test_a_lost_node_returns_its_job_unheld(cluster: PrivateCluster, port: SlurmPort) -> None:
    job = submit(cluster, script=SLEEPER)
    assert_runs_as_planned(port, port.apply([start(job, n0=8, n1=1)]))
    cluster.run("scontrol", "update", "nodename=n1", "state=down", "reason=test")
    wait_until(lambda: reading(port, job).state is SlurmState.PENDING)
    job_reading = reading(port, job)
    assert (job_reading.hold, job_reading.begin, job_reading.restarts) == (Hold.NONE, 0.0, 1)
    assert statuses(port.apply([hold(job)])) == [OutcomeStatus.DONE]
    assert reading(port, job).hold is Hold.HOPS
    assert statuses(port.apply([hold(job)])) == [OutcomeStatus.UNCHANGED]
    assert_runs_as_planned(port, port.apply([start(job, n2=2)]))


def test_a_lost_nodes_job_is_placed_without_a_step_between(
    cluster: PrivateCluster, port: SlurmPort
) -> None:
    job = submit(cluster, script=SLEEPER)
    assert_runs_as_planned(port, port.apply([start(job, n1=2)]))
    cluster.run("scontrol", "update", "nodename=n1", "state=down", "reason=test")
    wait_until(lambda: reading(port, job).state is SlurmState.PENDING)
    assert_runs_as_planned(port, port.apply([start(job, n2=2)]))


def test_a_requeue_changes_submit_and_begin_time(cluster: PrivateCluster, port: SlurmPort) -> None:
    job = submit(cluster)
    first = reading(port, job)
    port.apply([start(job, n0=1)])
    time.sleep(1.0)
    port.apply([preempt(job)])
    times = cluster.run("squeue", "--noheader", "--format=%V %S", "--job", job).split()
    submit_time, begins = (time.mktime(time.strptime(t, "%Y-%m-%dT%H:%M:%S")) for t in times)
    second = reading(port, job)
    assert begins - submit_time >= 120  # Slurm would wait for two minutes
    assert second.begin == 0.0
    assert second.submit > first.submit
    assert SETTINGS.start_timeout_seconds < 120
    assert_runs_as_planned(port, port.apply([start(job, n0=1)]))


def test_requeuehold_runs_ended_jobs_again(cluster: PrivateCluster, adapter: Adapter) -> None:
    """hops requests it only for incomplete jobs, as one may complete just before the request."""
    job = submit(cluster, script="exit 0")
    port = SlurmPort(adapter, SETTINGS)
    port.apply([start(job, n0=1)])
    wait_until(lambda: reading(port, job).state is SlurmState.COMPLETED)
    assert statuses(port.apply([preempt(job), move(job, n1=1)][:1])) == [OutcomeStatus.GONE]
    assert reading(port, job).state is SlurmState.COMPLETED
    adapter.requeue_hold(job)
    assert reading(port, job).state is SlurmState.COMPLETED
    adapter.requeue_hold(job, ended=True)
    assert reading(port, job).state is SlurmState.PENDING


def test_the_node_count_may_not_be_omitted(bare: PrivateCluster) -> None:
    """24.11 and later start on the first of the named nodes only; 22.05 uses both."""
    job = submit(bare, "--hold")
    words = ["reqnodelist=n0,n2", "tresPerNode=gres:gpu:1", "starttime=now"]
    bare.run("scontrol", "update", f"jobid={job}", *words)
    bare.run("scontrol", "release", job)
    port = SlurmPort(make_adapter("scontrol", bare), SETTINGS)
    wait_until(lambda: reading(port, job).state is SlurmState.RUNNING)
    nodes = set(reading(port, job).allocation.nodes)
    assert nodes == ({"n0"} if slurm_release() >= (24, 11) else {"n0", "n2"})
    planned_job = submit(bare, "--hold")
    assert_runs_as_planned(port, port.apply([start(planned_job, n1=1, n2=1)]))


@pytest.mark.parametrize(
    "options",
    [["--gres=gpu:rtx3090:1"], ["--gpus=1"], ["--gpus-per-task=1", "--ntasks=2"], ["--nodes=1"]],
)
def test_a_pinned_shape_is_refused_as_a_whole(
    bare: PrivateCluster, bare_port: SlurmPort, options: list[str]
) -> None:
    """Slurm drops the node list with the rest: a released job would start anywhere."""
    job = submit(bare, "--hold", *options)
    [outcome] = bare_port.apply([start(job, n1=2, n2=2)])
    job_read = reading(bare_port, job)
    if outcome.status is OutcomeStatus.DONE:  # a release that accepts the update
        assert job_read.allocation.as_dict() == {"n1": 2, "n2": 2}
        return
    assert outcome.status is OutcomeStatus.FAILED
    assert outcome.error
    assert (job_read.state, job_read.hold, job_read.restarts) == (SlurmState.PENDING, Hold.HOPS, 0)


def test_the_plugin_makes_pinned_shapes_placeable(cluster: PrivateCluster, port: SlurmPort) -> None:
    options = {"--gres=gpu:rtx3090:1": "n0", "--gpus=1": "n1", "--nodes=1": "n2"}
    options["--ntasks-per-node=4"] = "n2"
    steps = [start(submit(cluster, o), **{node: 2, "n3": 2}) for o, node in options.items()]
    assert_runs_as_planned(port, port.apply(steps))


def test_a_foreign_job_may_be_faster(cluster: PrivateCluster, adapter: Adapter) -> None:
    """Slurm's allocation differs from the plan, so nothing is recorded, and the job is held."""

    class DelayedAdapter:
        """Lets another job take GPUs between the reading and the release."""

        name = adapter.name
        read = adapter.read
        jobs = adapter.jobs
        glance = adapter.glance
        hold = adapter.hold
        place = adapter.place
        signal = adapter.signal
        requeue_hold = adapter.requeue_hold
        unpin = adapter.unpin
        batch = adapter.batch

        def release(self, jobs: list[JobId]) -> None:
            foreign = submit(cluster, "--gres=gpu:4", "--nodelist=n0", comment=None)
            text = ["squeue", "--noheader", "--format=%T", "--job", foreign]
            wait_until(lambda: cluster.run(*text).strip() == "RUNNING")
            adapter.release(jobs)

    job = submit(cluster)
    [outcome] = SlurmPort(DelayedAdapter(), SETTINGS).apply([start(job, n0=8, n1=2)])
    assert outcome.status is OutcomeStatus.FAILED
    assert "n0:4" in outcome.error
    assert not outcome.actual
    port = SlurmPort(adapter, SETTINGS)
    wait_until(lambda: reading(port, job).state is SlurmState.PENDING)
    assert reading(port, job).hold is Hold.HOPS


def test_a_job_that_cannot_start_is_held_again(cluster: PrivateCluster, adapter: Adapter) -> None:
    """Its cores are taken, which the plan does not know."""
    port, impatient = (
        SlurmPort(adapter, replace(SETTINGS, start_timeout_seconds=s)) for s in (60.0, 5.0)
    )
    submit(cluster, "--cpus-per-task=32", "--nodelist=n0", comment=None)
    wait_until(lambda: "n0" in cluster.run("squeue", "--noheader", "--format=%N"))
    job = submit(cluster)
    [outcome] = impatient.apply([start(job, n0=1)])
    assert outcome.status is OutcomeStatus.FAILED
    assert reading(port, job).hold is Hold.HOPS
    assert_runs_as_planned(port, port.apply([start(job, n1=1)]))


BROKEN_SCRIPT = """
function slurm_job_submit(job, partitions, uid)
  job.name = "half changed"
  local nothing = nil
  return nothing.value
end
function slurm_job_modify(job, record, partitions, uid) return slurm.SUCCESS end
return slurm.SUCCESS
"""


def test_a_lua_error_lets_a_job_through_or_refuses_it(tmp_path: Path) -> None:
    """Up to 24.11 the job is half changed and not held, so hops holds it. 26.05 refuses it."""
    script = tmp_path / "job_submit.lua"
    script.write_text(BROKEN_SCRIPT)
    with running_cluster(nodes=[NodeSpec("v100")] * 2, job_submit_lua=script) as cluster:
        if slurm_release() >= (26, 5):
            result = as_user(cluster, None, "sbatch", "--comment=hops:reqs=1", "--wrap=true")
            assert "runtime error" in result.stderr
            assert result.returncode == 1
            assert not cluster.run("squeue", "--all", "--noheader")
            return
        port = SlurmPort(make_adapter("scontrol", cluster), SETTINGS)
        job = submit(cluster, "--begin=now+1hour")
        job_reading = reading(port, job)
        assert (job_reading.name, job_reading.hold) == ("half changed", Hold.NONE)
        assert statuses(port.apply([hold(job)])) == [OutcomeStatus.DONE]
        assert (reading(port, job).hold, reading(port, job).begin) == (Hold.HOPS, job_reading.begin)


def test_a_defect_in_the_plugin_refuses_the_job(tmp_path: Path) -> None:
    body = "local function submit(job, partitions)"
    text = (PLUGIN / "job_submit.lua").read_text()
    assert body in text
    script = tmp_path / "job_submit.lua"
    script.write_text(text.replace(body, f"{body}\n  job.name = nil .. 'defect'"))
    with running_cluster(nodes=[NodeSpec("v100")] * 2, job_submit_lua=script) as cluster:
        command = ["sbatch", "--comment=hops:reqs=1", "--output=/dev/null", "--wrap=sleep 60"]
        result = as_user(cluster, None, *command)
        assert result.returncode != 0
        assert "hops:" in result.stderr
        assert not cluster.run("squeue", "--noheader")
        submit(cluster, comment=None)  # other jobs are not affected

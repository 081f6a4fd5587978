"""Readings of a live cluster are right whatever users write into their jobs."""

from __future__ import annotations

import contextlib
import signal
import time

import pytest
from fixtures_cluster import NOBODY, as_user, submit, wait_until
from slurm_contract import SETTINGS, hold, reading, start, statuses

from examples.demo.cluster import PrivateCluster
from hopsd.errors import SlurmUnavailableError
from hopsd.model.ids import JobId
from hopsd.model.reading import Hold, JobReading, SlurmState
from hopsd.model.step import OutcomeStatus
from hopsd.slurm.adapter import Adapter
from hopsd.slurm.apply import SlurmPort
from hopsd.slurm.scontrol import ScontrolAdapter

pytestmark = pytest.mark.live


def test_nodes_are_read(cluster: PrivateCluster, adapter: Adapter) -> None:
    start_time = time.time()
    read = adapter.read()
    assert start_time - 1 <= read.now <= time.time() + 1
    assert [(n.name, n.gpu_type, n.gpus, n.cores, n.usable) for n in read.nodes] == [
        *((f"n{i}", "rtx3090", 8, 32, True) for i in range(4)),
        *((f"n{i}", "v100", 4, 32, True) for i in (4, 5)),
    ]
    major, minor, *_ = read.slurm_version.split(".")
    assert f"{major}.{minor}" in cluster.run("scontrol", "--version")


def test_a_pending_job_is_read(cluster: PrivateCluster, adapter: Adapter) -> None:
    start_time = int(time.time())
    job = reading(adapter, submit(cluster, "--time=90", "--job-name=train", uid=NOBODY))
    assert (job.user, job.uid, job.name) == ("nobody", NOBODY, "train")
    assert (job.state, job.hold, job.dependency) == (SlurmState.PENDING, Hold.HOPS, False)
    assert (job.comment, job.partition) == ("hops:reqs=1,2,4", "main")
    assert (job.begin, job.start, job.end, job.restarts) == (0, 0, 0, 0)
    assert job.time_limit_seconds == 5400
    assert job.requeue
    assert start_time <= job.submit <= time.time()
    assert not job.allocation


def test_a_running_job_is_read(cluster: PrivateCluster, port: SlurmPort) -> None:
    job = submit(cluster)
    port.apply([start(job, n0=3, n1=3)])
    read = reading(port, job)
    assert read.state is SlurmState.RUNNING
    assert read.hold is Hold.NONE
    assert read.allocation.as_dict() == {"n0": 3, "n1": 3}
    assert {node: len(ids) for node, ids in read.gpu_indices.items()} == {"n0": 3, "n1": 3}
    assert 0 < read.start <= time.time()
    assert read.time_limit_seconds is None


@pytest.mark.parametrize(
    "name",
    [
        "two words",
        "x JobState=RUNNING Priority=1",
        "line\nJobId=99 JobName=fake UserId=root(0) Comment=hops:reqs=8",
        "quotes \" ' back\\slash ; $(touch /tmp/no) | \t tab",
        "ünïcödé 图 \x1b[31m",
        "]}, {",
    ],
)
def test_odd_names_are_read_unchanged(cluster: PrivateCluster, adapter: Adapter, name: str) -> None:
    job = submit(cluster, f"--job-name={name}", uid=NOBODY)
    [read] = [j for j in adapter.read().jobs if not j.state.finished]
    assert read.id == job
    assert (read.name, read.state, read.hold) == (name, SlurmState.PENDING, Hold.HOPS)


def test_a_poll_agrees_with_a_reading(
    cluster: PrivateCluster, adapter: Adapter, port: SlurmPort
) -> None:
    runs, requeued_job, waits, user_held_job = (submit(cluster, uid=NOBODY) for _ in range(4))
    later = submit(cluster, "--begin=now+1hour", uid=NOBODY)
    array = submit(cluster, "--array=0-1", uid=NOBODY)
    task = JobId(f"{array}_1")
    port.apply([start(job, n0=1) for job in (runs, requeued_job, task)])
    assert as_user(cluster, NOBODY, "scontrol", "hold", user_held_job).returncode == 0
    adapter.requeue_hold(requeued_job)
    wait_until(lambda: reading(adapter, requeued_job).state is SlurmState.PENDING)
    jobs = [runs, requeued_job, waits, user_held_job, later, task]
    read = {job.id: _glimpse(job) for job in adapter.read().jobs if job.id in jobs}
    states_by_job = adapter.glance(jobs)
    assert states_by_job.keys() >= {
        runs,
        waits,
        user_held_job,
        later,
        task,
    }  # Slurm describes why one was requeued
    assert {job: _glimpse(item) for job, item in states_by_job.items()} == {
        job: read[job] for job in states_by_job
    }
    assert read[user_held_job][2] is Hold.USER


def _glimpse(job: JobReading) -> tuple[object, ...]:
    return job.state, job.reason, job.hold, job.begin, job.restarts


def test_only_hops_jobs_are_read(cluster: PrivateCluster, adapter: Adapter) -> None:
    """GPUs of other jobs are read as taken."""
    ours = submit(cluster)
    submit(cluster, "--gres=gpu:3", "--nodelist=n1", comment=None)
    submit(cluster, "--gres=gpu:v100:2", "--nodelist=n4", comment="about hops")
    wait_until(lambda: sum(n.foreign_gpus for n in adapter.read().nodes) == 5)
    read = adapter.read()
    assert [job.id for job in read.jobs if not job.state.finished] == [ours]
    assert [job.id for job in adapter.jobs() if not job.state.finished] == [ours]
    assert {n.name: n.foreign_gpus for n in read.nodes if n.foreign_gpus} == {"n1": 3, "n4": 2}


def test_an_owner_holds_and_releases(cluster: PrivateCluster, port: SlurmPort) -> None:
    job = submit(cluster, uid=NOBODY)
    assert as_user(cluster, NOBODY, "scontrol", "hold", job).returncode == 0
    assert reading(port, job).hold is Hold.USER
    [outcome] = port.apply([start(job, n0=1)])
    assert outcome.status is OutcomeStatus.FAILED
    assert "owner" in outcome.error
    assert statuses(port.apply([hold(job)])) == [OutcomeStatus.UNCHANGED]
    assert as_user(cluster, NOBODY, "scontrol", "release", job).returncode == 0
    assert reading(port, job).hold is Hold.HOPS
    assert statuses(port.apply([start(job, n0=1)])) == [OutcomeStatus.DONE]


def test_a_job_submitted_with_hold_is_held_by_its_user(
    cluster: PrivateCluster, adapter: Adapter
) -> None:
    assert reading(adapter, submit(cluster, "--hold", uid=NOBODY)).hold is Hold.USER


def test_dependencies_are_evaluated(cluster: PrivateCluster, port: SlurmPort) -> None:
    """Slurm itself does not evaluate the dependencies of a held job."""
    first = submit(cluster)
    after_any = submit(cluster, f"--dependency=afterany:{first}")
    after_ok = submit(cluster, f"--dependency=afterok:{first}")
    alone = submit(cluster, "--dependency=singleton")
    for job in (after_any, after_ok, alone):
        assert reading(port, job).dependency
        assert not reading(port, job).is_stranded
        [outcome] = port.apply([start(job, n0=1)])
        assert outcome.status is OutcomeStatus.FAILED
    cluster.run("scancel", first)
    assert reading(port, after_any).hold is Hold.HOPS
    assert not reading(port, after_any).dependency
    assert reading(port, after_ok).dependency
    assert [reading(port, job).is_stranded for job in (after_any, after_ok)] == [False, True]
    assert statuses(port.apply([start(after_any, n0=1)])) == [OutcomeStatus.DONE]


def test_begin_times_belong_to_the_user(cluster: PrivateCluster, port: SlurmPort) -> None:
    start_time = time.time()
    job = submit(cluster, "--begin=now+1hour")
    assert start_time - 1 <= reading(port, job).begin - 3600 <= time.time() + 1
    [outcome] = port.apply([start(job, n0=1)])
    assert outcome.status is OutcomeStatus.FAILED
    assert "begin" in outcome.error


@pytest.mark.parametrize("state", ["drain", "down"])
def test_a_lost_node_returns(cluster: PrivateCluster, port: SlurmPort, state: str) -> None:
    """A node that is down returns when its slurmd registers (ReturnToService=2): three tries."""
    update = ("scontrol", "update", "nodename=n0", f"state={state}", "reason=State=IDLE test")
    for _ in range(3):
        cluster.run(*update)
        nodes = {node.name: node for node in port.read().nodes}
        [outcome] = port.apply([start(submit(cluster), n0=1)])
        if outcome.status is OutcomeStatus.FAILED:
            break
    assert [name for name, node in nodes.items() if not node.usable] == ["n0"]
    assert state.upper() in nodes["n0"].state_text
    assert outcome.status is OutcomeStatus.FAILED


def test_ended_jobs_remain_readable(cluster: PrivateCluster, port: SlurmPort) -> None:
    good, bad = submit(cluster, script="sleep 1"), submit(cluster, script="sleep 1; exit 7")
    port.apply([start(good, n0=1), start(bad, n1=1)])
    wait_until(lambda: all(reading(port, j).state.finished for j in (good, bad)))
    assert reading(port, good).state is SlurmState.COMPLETED
    ended_reading = reading(port, bad)
    assert (ended_reading.state, ended_reading.exit_code, ended_reading.exit_signal) == (
        SlurmState.FAILED,
        7,
        0,
    )
    assert ended_reading.start <= ended_reading.end <= time.time()
    assert not ended_reading.allocation


def test_only_hopsds_partitions_are_read(cluster: PrivateCluster) -> None:
    job = submit(cluster)
    read = ScontrolAdapter(cluster.commands(), partitions=["x", "main"]).read()
    assert len(read.nodes) == 6
    assert job in {j.id for j in read.jobs}


def test_a_job_that_hops_holds_outside_its_partitions_is_not_forgotten(
    cluster: PrivateCluster, port: SlurmPort
) -> None:
    running_job, held_job = submit(cluster), submit(cluster)
    port.apply([start(running_job, n0=1)])
    reading = ScontrolAdapter(cluster.commands(), partitions=["other"]).read()
    assert not reading.nodes
    (job,) = reading.jobs
    assert job.id == held_job
    assert job.bar.startswith("hops does not schedule partition main (slurm.partitions)")


def test_a_stopped_or_killed_controller_recovers(cluster: PrivateCluster, port: SlurmPort) -> None:
    job = submit(cluster)
    port.apply([start(job, n0=2)])
    held_job = submit(cluster)
    state = cluster.directory / "state" / "job_state"
    name = f"saved-{held_job}"

    def is_saved() -> bool:
        """slurmctld saves after a change, but may skip one in the same second as the last save."""
        cluster.run("scontrol", "update", f"jobid={held_job}", f"name={name}")
        with contextlib.suppress(FileNotFoundError):  # between removal and renaming
            return name.encode() in state.read_bytes()
        return False

    wait_until(is_saved)  # what it has not saved is lost
    cluster.stop_slurmctld(signal_number=signal.SIGKILL)
    unavailable_port = SlurmPort(ScontrolAdapter(cluster.commands(timeout_seconds=1.0)), SETTINGS)
    try:
        with pytest.raises(SlurmUnavailableError):
            unavailable_port.read()
        with pytest.raises(SlurmUnavailableError):
            unavailable_port.apply([start(held_job, n1=1)])
    finally:
        cluster.start_slurmctld()
        cluster.wait_for_nodes()

    def readable() -> bool:
        """Slurm shows saved states of nodes until it has heard from them."""
        with contextlib.suppress(SlurmUnavailableError):
            port.read()
            return True
        return False

    wait_until(readable)
    assert reading(port, job).allocation.as_dict() == {"n0": 2}
    assert reading(port, held_job).hold is Hold.HOPS
    assert statuses(port.apply([start(held_job, n1=1)])) == [OutcomeStatus.DONE]

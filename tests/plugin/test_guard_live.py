"""What the owner of a hops job may change, on a live slurmctld."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from fixtures_cluster import NOBODY, SLEEPER, as_user, submit, wait_until
from submit_live import (
    by_owner,
    job_fields,
    plugin_text,
    reading,
    submit_script,
)

from examples.demo.cluster import PrivateCluster
from hopsd.errors import SlurmError
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.model.reading import RELEASED_MARK, USER_HOLD_BEGIN, Hold, SlurmState
from hopsd.model.step import OutcomeStatus, Step, StepKind
from hopsd.slurm.adapter import Placement
from hopsd.slurm.apply import SlurmPort
from hopsd.slurm.scontrol import ScontrolAdapter

pytestmark = pytest.mark.live


@pytest.mark.parametrize(
    "change",
    [
        "nice=5",
        "priority=100",
        "comment=",
        "comment=hops:reqs=8",
        "reqnodelist=n1",
        "reqnodelist=",
        "excnodelist=n1",
        "numnodes=2",
        "numcpus=4",
        "numtasks=2",
        "mincpusnode=2",
        "gres=gpu:1",
        "gres=",
        "features=v100",
        "requeue=0",
        "oversubscribe=yes",
        "contiguous=1",
        "name=innocent nice=5",
    ],
)
def test_the_owner_can_neither_start_nor_shape_the_job(
    cluster: PrivateCluster, change: str
) -> None:
    job = submit(cluster, uid=NOBODY)
    before = job_fields(cluster, job)
    refusal = by_owner(cluster, "scontrol", "update", f"jobid={job}", *change.split())
    assert "denied" in refusal
    assert job_fields(cluster, job) == {**before, "RunTime": job_fields(cluster, job)["RunTime"]}


@pytest.mark.parametrize("change", ["nice=5", "priority=9", "priority=9 starttime=now"])
def test_no_operator_can_start_an_unplaced_job(cluster: PrivateCluster, change: str) -> None:
    job = submit(cluster, script=SLEEPER)
    with pytest.raises(SlurmError, match="denied"):
        cluster.commands().run("scontrol", "update", f"jobid={job}", *change.split())
    assert reading(cluster, job).hold is Hold.HOPS
    cluster.run("scontrol", "update", f"jobid={job}", "name=other")


@pytest.mark.parametrize("text", ["ticket 4711", ""])
def test_an_admin_comment_by_an_operator_keeps_the_scripts_options(
    cluster: PrivateCluster, text: str
) -> None:
    """hopsd reads the options from the admin comment, so the job silently lost its shape."""
    job = submit(cluster, "--nodes=1", "--gres=gpu:2", comment="hops:reqs=2", uid=NOBODY)
    options = reading(cluster, job).options
    for _ in range(2):
        cluster.run("scontrol", "update", f"jobid={job}", f"admincomment={text}")
        assert reading(cluster, job).options == options
        job_details = cluster.run("scontrol", "show", "job", "--oneliner", job)
        assert f"AdminComment={text}" in job_details
        assert job_details.count("hops:asks") == 1


@pytest.mark.parametrize("options", [[], ["--hold"]])
def test_an_operators_release_keeps_the_hold_by_hops(
    cluster: PrivateCluster, options: list[str]
) -> None:
    """A release used to start the job as submitted, on GPUs of Slurm's choice."""
    job = submit(cluster, *options, script=SLEEPER)
    for _ in range(2):
        cluster.run("scontrol", "release", job)
        assert reading(cluster, job).hold is Hold.HOPS
        assert reading(cluster, job).begin <= time.time()
    time.sleep(1.5)  # a scheduling cycle
    assert reading(cluster, job).state is SlurmState.PENDING


def run(cluster: PrivateCluster, job: JobId) -> None:
    """Start the job as hopsd does."""
    adapter = ScontrolAdapter(cluster.commands())
    adapter.place(Placement(job, Allocation.of({"n1": 2})))
    adapter.release([job])
    wait_until(lambda: reading(cluster, job).state is SlurmState.RUNNING)


def test_the_owner_may_change_everything_but_hold_and_shape(cluster: PrivateCluster) -> None:
    other_job = submit(cluster, uid=NOBODY)
    job = submit(cluster, "--time=60", uid=NOBODY)
    changes = f"name=mine timelimit=30 partition=main dependency=afterany:{other_job}"
    assert by_owner(cluster, "scontrol", "update", f"jobid={job}", *changes.split()) == ""
    job_values = job_fields(cluster, job)
    assert (job_values["JobName"], job_values["TimeLimit"], job_values["Priority"]) == (
        "mine",
        "00:30:00",
        "0",
    )
    assert reading(cluster, job).dependency


@pytest.mark.parametrize("actor", ["owner", "operator"])
def test_a_partition_chosen_by_the_user_is_final(cluster: PrivateCluster, actor: str) -> None:
    """The choice also holds if hopsd has placed the job there, and for each task of an array."""
    job = submit(cluster, "--array=0-1", uid=NOBODY)
    mark = "#hops-partitions=main,other>main"
    cluster.run("scontrol", "update", f"jobid={job}", f"comment=hops:reqs=1 {mark}")
    tasks = [f"{job}_0", f"{job}_1"]
    assert [reading(cluster, task).partition for task in tasks] == ["main,other"] * 2
    change = ("scontrol", "update", f"jobid={job}", "partition=main")
    for _ in range(2):
        if actor == "owner":
            assert by_owner(cluster, *change) == ""
        else:
            cluster.run(*change)
        assert [reading(cluster, task).partition for task in tasks] == ["main"] * 2
    job_details = cluster.run("scontrol", "show", "job", job)
    assert mark not in job_details
    assert "Priority=0 " in job_details


@pytest.mark.long
def test_an_owner_may_hold_and_release_while_hops_keeps_its_hold(cluster: PrivateCluster) -> None:
    job = submit(cluster, uid=NOBODY)
    assert reading(cluster, job).hold is Hold.HOPS
    for _ in range(2):
        assert by_owner(cluster, "scontrol", "hold", job) == ""
        assert reading(cluster, job).hold is Hold.USER
        assert reading(cluster, job).begin == USER_HOLD_BEGIN
        assert by_owner(cluster, "scontrol", "release", job) == ""
        assert reading(cluster, job).hold is Hold.HOPS
        assert reading(cluster, job).begin <= time.time()
    assert job_fields(cluster, job)["Priority"] == "0"


def test_a_job_submitted_with_hold_waits_for_its_owner(cluster: PrivateCluster) -> None:
    job = submit(cluster, "--hold", uid=NOBODY)
    assert reading(cluster, job).hold is Hold.USER
    assert by_owner(cluster, "scontrol", "release", job) == ""
    assert reading(cluster, job).hold is Hold.HOPS


@pytest.mark.parametrize("command", ["hold", "uhold"])
def test_an_operators_hold_keeps_a_job_back_whatever_its_owner_does(
    cluster: PrivateCluster, command: str
) -> None:
    job = submit(cluster, uid=NOBODY)
    for _ in range(2):
        cluster.run("scontrol", command, job)
        assert reading(cluster, job).hold is Hold.USER
    assert "denied" in by_owner(cluster, "scontrol", "release", job)
    assert "denied" in by_owner(cluster, "scontrol", "update", f"jobid={job}", "starttime=now")
    assert by_owner(cluster, "scontrol", "hold", job) == ""
    assert reading(cluster, job).hold is Hold.USER
    cluster.run("scontrol", "release", job)
    assert reading(cluster, job).hold is Hold.HOPS
    assert reading(cluster, job).marks == ""
    assert reading(cluster, job).begin <= time.time()


def holds(cluster: PrivateCluster, actor: str, job: JobId) -> None:
    """Hold the job as a user would, right after hopsd looked at it."""
    if actor == "owner":
        assert by_owner(cluster, "scontrol", "hold", job) == ""
    else:
        cluster.run("scontrol", "hold", job)


@pytest.mark.parametrize("actor", ["owner", "operator"])
@pytest.mark.parametrize("request_", ["hold", "place", "release"])
def test_a_hold_between_hopsds_reading_and_its_request_remains(
    cluster: PrivateCluster, actor: str, request_: str
) -> None:
    adapter = ScontrolAdapter(cluster.commands())
    job = submit(cluster, uid=NOBODY)
    placement = Placement(job, Allocation.of({"n1": 2}))
    if request_ == "release":
        adapter.place(placement)
    holds(cluster, actor, job)
    requests = {
        "hold": lambda: adapter.hold(job),
        "place": lambda: adapter.place(placement),
        "release": lambda: adapter.release([job]),
    }
    with pytest.raises(SlurmError):
        requests[request_]()
    assert reading(cluster, job).hold is Hold.USER
    cluster.run("scontrol", "release", job)
    assert reading(cluster, job).hold is Hold.HOPS


def test_a_job_held_at_any_moment_of_its_start_does_not_start(cluster: PrivateCluster) -> None:
    """The owner holds it right before each request that hopsd makes for it."""
    for moment in ("place", "release"):
        job = submit(cluster, uid=NOBODY)

        class SlowAdapter(ScontrolAdapter):
            def place(self, placement: Placement) -> None:
                if moment == "place":  # noqa: B023
                    holds(cluster, "owner", placement.job)
                super().place(placement)

            def release(self, jobs: Sequence[JobId]) -> None:
                if moment == "release":  # noqa: B023
                    holds(cluster, "owner", jobs[0])
                super().release(jobs)

        port = SlurmPort(SlowAdapter(cluster.commands()))
        step = Step(job, StepKind.START, target=Allocation.of({"n0": 2}))
        (outcome,) = port.apply([step])
        assert outcome.status is OutcomeStatus.FAILED
        assert reading(cluster, job).hold is Hold.USER
        assert by_owner(cluster, "scontrol", "release", job) == ""
        (outcome,) = SlurmPort(ScontrolAdapter(cluster.commands())).apply([step])
        assert outcome.status is OutcomeStatus.DONE


def test_an_operators_hold_outlasts_its_owners_begin_time(cluster: PrivateCluster) -> None:
    job = submit(cluster, uid=NOBODY)
    cluster.run("scontrol", "hold", job)
    assert "denied" in by_owner(cluster, "scontrol", "update", f"jobid={job}", "starttime=now")
    assert reading(cluster, job).hold is Hold.USER


def test_an_operator_may_release_an_owners_hold(cluster: PrivateCluster) -> None:
    job = submit(cluster, "--hold", uid=NOBODY)
    cluster.run("scontrol", "release", job)
    assert reading(cluster, job).hold is Hold.HOPS
    assert reading(cluster, job).begin <= time.time()


def test_an_operators_hold_of_a_running_job_changes_what_plain_slurm_changes(
    cluster: PrivateCluster,
) -> None:
    job = submit(cluster, uid=NOBODY)
    run(cluster, job)
    cluster.run("scontrol", "hold", job)
    assert reading(cluster, job).state is SlurmState.RUNNING
    assert reading(cluster, job).marks == ""


def test_a_running_job_is_held_by_requeuehold(cluster: PrivateCluster) -> None:
    job = submit(cluster, uid=NOBODY)
    run(cluster, job)
    assert "denied" in by_owner(cluster, "scontrol", "hold", job)
    assert by_owner(cluster, "scontrol", "requeue", job) == ""
    wait_until(lambda: reading(cluster, job).state is SlurmState.PENDING)
    assert by_owner(cluster, "scontrol", "hold", job) == ""
    assert reading(cluster, job).hold is Hold.USER


def test_no_job_joins_hops_after_submission(cluster: PrivateCluster) -> None:
    job = submit(cluster, "--hold", comment="mine", uid=NOBODY)
    refusal = by_owner(cluster, "scontrol", "update", f"jobid={job}", "comment=hops:reqs=1")
    assert "denied" in refusal
    assert job_fields(cluster, job)["Comment"] == "mine"


def test_a_job_returned_to_slurm_belongs_to_its_owner_again(cluster: PrivateCluster) -> None:
    job = submit(cluster, uid=NOBODY)
    cluster.run("scontrol", "update", f"jobid={job}", f"comment=hops:reqs=1 {RELEASED_MARK}")
    assert by_owner(cluster, "scontrol", "update", f"jobid={job}", "nice=5") == ""
    wait_until(lambda: reading(cluster, job).state is SlurmState.RUNNING)


def test_a_defect_in_the_guard_allows_no_change(cluster: PrivateCluster) -> None:
    job = submit(cluster, uid=NOBODY)
    line = "local function modify(job, record)\n"
    with submit_script(cluster, plugin_text().replace(line, line + '  error("injected")\n')):
        for change in ("nice=5", "name=other"):
            assert "denied" in by_owner(cluster, "scontrol", "update", f"jobid={job}", change)
        cluster.run("scontrol", "update", f"jobid={job}", "name=by-root")
    assert job_fields(cluster, job)["JobName"] == "by-root"
    assert job_fields(cluster, job)["Priority"] == "0"


def test_operators_named_by_the_site_may_place_and_release(cluster: PrivateCluster) -> None:
    job = submit(cluster, uid=NOBODY)
    place = ["reqnodelist=n1", "tresPerJob=", "tresPerNode=gres:gpu:2", "starttime=now"]
    with submit_script(cluster, plugin_text(), f"return {{ operators = {{ {NOBODY} }} }}"):
        assert by_owner(cluster, "scontrol", "update", f"jobid={job}", *place) == ""
        assert by_owner(cluster, "scontrol", "release", job) == ""
        wait_until(lambda: reading(cluster, job).state is SlurmState.RUNNING)
    assert reading(cluster, job).allocation.as_dict() == {"n1": 2}


def test_no_user_can_set_hopsds_marks(cluster: PrivateCluster) -> None:
    command = ["sbatch", "--chdir=/", "--wrap=true", f"--comment=hops:reqs=1 {RELEASED_MARK}"]
    refusal = as_user(cluster, NOBODY, *command)
    assert "hopsd's own mark" in refusal.stderr
    assert refusal.returncode != 0

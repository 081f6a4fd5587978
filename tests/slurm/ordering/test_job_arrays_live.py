"""Job arrays on a live cluster: each task is a job, however Slurm splits the array."""

from __future__ import annotations

from pathlib import Path

import pytest
from fixtures_cluster import NOBODY, SAVER, as_user, submit, wait_until
from memory_store import MemoryStore
from slurm_contract import preempt, start, statuses

from examples.demo.cluster import PrivateCluster
from hopsd.core.queue.profile_runs import ProfilingSettings
from hopsd.model.ids import JobId
from hopsd.model.reading import Hold, JobReading, SlurmState
from hopsd.model.step import OutcomeStatus, Step, StepKind
from hopsd.policies.registry import get
from hopsd.round.run import run_round
from hopsd.round.settings import RoundSettings
from hopsd.slurm.apply import SlurmPort

pytestmark = pytest.mark.live

ROUND = RoundSettings(seconds=60.0, profiling=ProfilingSettings(enabled=False))


class Site:
    def __init__(self, cluster: PrivateCluster, port: SlurmPort) -> None:
        self.cluster = cluster
        self.folder = cluster.directory / "arrays"
        self.folder.mkdir(exist_ok=True)
        self.folder.chmod(0o777)
        for path in self.folder.iterdir():
            path.unlink()
        self.port = port
        self.store = MemoryStore()
        self.before = {job.array or job.id for job in self.port.read().jobs}

    def array(self, tasks: str, *options: str, script: str = SAVER) -> JobId:
        return submit(
            self.cluster,
            f"--array={tasks}",
            f"--output={self.folder}/%A_%a.out",
            *options,
            script=script,
            comment="hops:reqs=1",
            uid=NOBODY,
        )

    def round(self) -> bool:
        run_round(self.port, self.store, get("hops"), ROUND, None)
        return True

    def jobs(self) -> dict[str, JobReading]:
        """Return the jobs of this test; Slurm still knows those of the previous one."""
        all_jobs = self.port.read().jobs
        return {job.id: job for job in all_jobs if (job.array or job.id) not in self.before}

    def by_owner(self, *command: str) -> None:
        result = as_user(self.cluster, NOBODY, *command)
        assert result.returncode == 0, result.stderr

    def path(self, name: str) -> Path:
        return self.folder / name


@pytest.fixture
def site(cluster: PrivateCluster, port: SlurmPort) -> Site:
    return Site(cluster, port)


def states(site: Site) -> dict[str, str]:
    return {job.id: job.state.value for job in site.jobs().values()}


def test_a_sweep_runs_as_on_plain_slurm(site: Site) -> None:
    script = f"""
env | grep ^SLURM_ARRAY_ | sort
cd {site.folder}
touch run.$SLURM_ARRAY_TASK_ID
while [ ! -e go ]; do sleep 0.1; done
rm run.$SLURM_ARRAY_TASK_ID"""
    job = site.array("2-10:2%3", script=script)
    site.round()
    wait_until(lambda: len(list(site.folder.glob("run.*"))) == 3)
    state_by_task = states(site)
    assert state_by_task == {
        **dict.fromkeys([f"{job}_{t}" for t in (2, 4, 6)], "RUNNING"),
        job: "PENDING",
    }
    pending_tasks = site.jobs()[job]
    assert pending_tasks.is_throttled
    assert str(pending_tasks.rest) == "8,10"
    site.path("go").touch()
    wait_until(lambda: site.round() and set(states(site).values()) == {"COMPLETED"})
    assert sorted(states(site)) == sorted(f"{job}_{t}" for t in (2, 4, 6, 8, 10))
    for task in (2, 4, 6, 8, 10):
        output = site.path(f"{job}_{task}.out").read_text().split()
        assert output == [
            f"SLURM_ARRAY_JOB_ID={job}", "SLURM_ARRAY_TASK_COUNT=5", f"SLURM_ARRAY_TASK_ID={task}",
            "SLURM_ARRAY_TASK_MAX=10", "SLURM_ARRAY_TASK_MIN=2", "SLURM_ARRAY_TASK_STEP=2",
        ]  # fmt: skip


def test_one_task_moves_and_keeps_its_name(site: Site) -> None:
    """The signal comes once although tasks of the array wait; Slurm would send it ten times."""
    script = f"""
trap 'echo saved >> {site.folder}/signals; sleep 1; exit 85' USR1
touch {site.folder}/up; sleep 600 & wait"""
    job = site.array("1-9", script=script)
    second = JobId(f"{job}_2")
    assert statuses(site.port.apply([start(second, n1=1)])) == [OutcomeStatus.DONE]
    number = site.jobs()[second].number
    assert number not in ("", job)
    wait_until(site.path("up").exists)
    assert statuses(site.port.apply([preempt(second)])) == [OutcomeStatus.DONE]
    job_reading = site.jobs()[second]
    assert (job_reading.state, job_reading.hold, job_reading.restarts) == (
        SlurmState.PENDING,
        Hold.HOPS,
        1,
    )
    assert site.path("signals").read_text() == "saved\n"
    assert statuses(site.port.apply([start(second, n2=1)])) == [OutcomeStatus.DONE]
    assert site.jobs()[second].number == number


def test_the_owner_holds_releases_and_cancels_one_task_or_all(site: Site) -> None:
    job = site.array("1-4")

    def holds() -> dict[str, Hold]:
        return {j.id: j.hold for j in site.jobs().values() if not j.state.finished}

    task_ids = [f"{job}_{task}" for task in range(1, 5)]
    assert holds() == dict.fromkeys(task_ids, Hold.HOPS)
    site.by_owner("scontrol", "hold", f"{job}_3")
    assert holds() == {**dict.fromkeys(task_ids, Hold.HOPS), f"{job}_3": Hold.USER}
    site.by_owner("scontrol", "hold", job)
    assert holds() == dict.fromkeys(task_ids, Hold.USER)
    outcomes = site.port.apply([start(JobId(f"{job}_1"), n0=1)])
    assert statuses(outcomes) == [OutcomeStatus.FAILED]
    site.by_owner("scontrol", "release", f"{job}_2")
    site.round()
    assert states(site)[f"{job}_2"] == "RUNNING"
    error_output = as_user(site.cluster, NOBODY, "scontrol", "release", job).stderr
    assert "2: Job is no longer pending" in error_output.replace(
        "[2]", "2"
    )  # the task runs; the others are free
    assert set(holds().values()) == {Hold.HOPS, Hold.NONE}
    site.by_owner("scancel", f"{job}_2", f"{job}_4")
    wait_until(lambda: set(holds()) == {f"{job}_1", f"{job}_3"})
    site.by_owner("scancel", job)
    assert holds() == {}


def test_an_operator_holds_and_releases_all(site: Site) -> None:
    job = site.array("1-3")
    site.cluster.run("scontrol", "hold", f"{job}_2")
    site.cluster.run("scontrol", "hold", job)
    result = as_user(site.cluster, NOBODY, "scontrol", "release", f"{job}_1")
    assert "denied" in result.stderr
    assert {j.hold for j in site.jobs().values()} == {Hold.USER}
    assert {j.marks for j in site.jobs().values()} == {"#hops-held"}
    site.cluster.run("scontrol", "release", job)
    assert {j.marks for j in site.jobs().values()} == {""}
    wait_until(lambda: site.round() and set(states(site).values()) == {"RUNNING"})


def test_jobs_wait_for_tasks_and_tasks_for_tasks(site: Site) -> None:
    job = site.array("1-2", script="test $SLURM_ARRAY_TASK_ID = 1")
    options = ("--parsable", "--comment=hops:reqs=1", "--wrap=true", "--output=/dev/null", "-D/")
    children = {}
    for kind in (f"afterok:{job}_1", f"afterany:{job}", f"afternotok:{job}_2"):
        result = as_user(site.cluster, NOBODY, "sbatch", *options, f"--dependency={kind}")
        children[result.stdout.strip()] = kind
    second_array = site.array("1-2", f"--dependency=aftercorr:{job}", script="true")
    jobs_by_id = site.jobs()
    assert all(jobs_by_id[child].dependency for child in children)
    assert jobs_by_id[f"{second_array}_1"].dependency
    dependants = {*children, f"{job}_1", f"{second_array}_1"}
    wait_until(
        lambda: (
            site.round() and dependants <= {j for j, s in states(site).items() if s == "COMPLETED"}
        )
    )
    assert site.jobs()[f"{second_array}_2"].is_stranded


def test_an_array_is_returned_to_plain_slurm(site: Site) -> None:
    job = site.array("0-98:2%2", script="sleep 600")
    steps = [Step(JobId(n), StepKind.RELEASE, gpus=1) for n in (f"{job}_0", f"{job}_2", job)]
    assert statuses(site.port.apply(steps)) == [OutcomeStatus.DONE] * 3
    wait_until(lambda: list(states(site).values()).count("RUNNING") == 2)
    assert all(read.released for read in site.jobs().values())
    assert len(site.jobs()[job].rest or ()) == 48


def test_many_tasks_take_one_reading(site: Site) -> None:
    job = site.array("0-999")
    jobs_by_id = site.jobs()
    assert sorted(jobs_by_id) == sorted([job, *(f"{job}_{task}" for task in range(40))])
    assert len(jobs_by_id[job].rest or ()) == 960

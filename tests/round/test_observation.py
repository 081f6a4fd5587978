"""How jobs are assigned to workloads from one reading to the next."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from memory_store import MemoryStore

from hopsd.model.history import JobRecord
from hopsd.model.ids import JobId, UserName, WorkloadName
from hopsd.model.reading import JobReading, Reading, SlurmState
from hopsd.round.observe import observe

SCRIPT = WorkloadName("ann/train/train.sh@3f9a1c2e4b5d")
OLD, NEW = "0123456789ab", "ba9876543210"


@dataclass
class Cluster:
    """A port whose reading has these jobs."""

    comments: dict[str, str]
    script: str | None = "3f9a1c2e4b5d"
    submit: float = 1.0
    store: MemoryStore = field(default_factory=MemoryStore)
    name: str = "memory"
    now: float = 1000.0

    def read(self) -> Reading:
        jobs = [
            JobReading(
                JobId(number), UserName("ann"), 1, "train", comment, "main",
                SlurmState.PENDING, self.submit, command="/home/ann/train.sh", script=self.script,
            )
            for number, comment in self.comments.items()
        ]  # fmt: skip
        return Reading(self.now, (), tuple(jobs))

    def tell(self, job: str, program: str) -> None:
        """Record the program that a job reported to train with."""
        record = self.store.jobs()[JobId(job)]
        self.store.save_jobs([replace(record, program=program)])
        self.store.save_program(SCRIPT, program, 1000.0)

    def workloads(self) -> dict[str, str]:
        observation = observe(self, self.store, 8)  # type: ignore[arg-type]
        return {job: record.workload for job, record in observation.records.items()}


def test_a_job_has_its_reported_program_or_the_last_of_its_script() -> None:
    cluster = Cluster({"1": "hops:reqs=1", "2": "hops:reqs=1", "3": "hops:reqs=1;workload=bert"})
    assert cluster.workloads() == {"1": SCRIPT, "2": SCRIPT, "3": "bert"}
    cluster.tell("1", OLD)
    assert cluster.workloads() == {"1": f"{SCRIPT}+{OLD}", "2": f"{SCRIPT}+{OLD}", "3": "bert"}
    cluster.tell("2", NEW)
    cluster.comments["4"] = "hops:reqs=2"
    assert cluster.workloads() == {
        "1": f"{SCRIPT}+{OLD}",
        "2": f"{SCRIPT}+{NEW}",
        "3": "bert",
        "4": f"{SCRIPT}+{NEW}",
    }


def test_a_name_that_the_user_gives_later_counts_from_then_on() -> None:
    cluster = Cluster({"1": "hops:reqs=1"})
    assert cluster.workloads() == {"1": SCRIPT}
    cluster.comments["1"] = "hops:reqs=1;workload=bert"
    assert cluster.workloads() == {"1": "bert"}


def test_a_job_with_an_unread_script_keeps_its_workload_or_has_none() -> None:
    """This happens after hopsd restarts on a busy cluster."""
    cluster = Cluster({"1": "hops:reqs=1"})
    cluster.workloads()
    cluster.comments["2"] = "hops:reqs=1"
    cluster.script = None
    for _ in range(2):
        observation = observe(cluster, cluster.store, 8)  # type: ignore[arg-type]
        assert observation.records[JobId("1")].workload == SCRIPT
        assert observation.comments.keys() == {"1"}
        assert "script" in observation.errors[JobId("2")].text
    cluster.script = "3f9a1c2e4b5d"
    assert cluster.workloads() == {"1": SCRIPT, "2": SCRIPT}


def test_a_reused_id_does_not_name_the_next_jobs_workload() -> None:
    """The next job would have no workload in plans until its script is read."""
    cluster = Cluster({"1": "hops:reqs=1"})
    cluster.workloads()
    cluster.script, cluster.submit = None, 50.0
    observation = observe(cluster, cluster.store, 8)  # type: ignore[arg-type]
    assert observation.comments.keys() == set()
    assert "script" in observation.errors[JobId("1")].text


END = JobReading(
    JobId("1"), UserName("ann"), 1, "train", "hops:reqs=1", "", SlurmState.FAILED, 1.0,
    start=1100.0, end=1400.0, requeue=False,
)  # fmt: skip


@dataclass
class ForgetfulCluster(Cluster):
    """A port whose Slurm has forgotten the jobs that ``ends`` or ``is_pending`` tell of."""

    ends: dict[JobId, JobReading | None] = field(default_factory=dict)
    is_pending: bool = False

    def ended_jobs(self, records: list[JobRecord]) -> dict[JobId, JobReading | None]:
        return {} if self.is_pending else {record.id: self.ends[record.id] for record in records}


def forgetful_cluster(end: JobReading | None = END) -> ForgetfulCluster:
    cluster = ForgetfulCluster({"1": "hops:reqs=1"}, ends={JobId("1"): end})
    cluster.workloads()
    del cluster.comments["1"]
    cluster.now = 2000.0
    return cluster


def test_a_job_that_slurm_has_forgotten_ended_as_its_accounting_says() -> None:
    cluster = forgetful_cluster()
    observation = observe(cluster, cluster.store, 8)  # type: ignore[arg-type]
    record = observation.records[JobId("1")]
    assert (record.state, record.end, record.run_seconds) == (SlurmState.FAILED, 1400.0, 300.0)
    assert not cluster.store.jobs()


def test_a_job_that_the_accounting_does_not_know_ended_when_it_was_last_seen() -> None:
    cluster = forgetful_cluster(None)
    observation = observe(cluster, cluster.store, 8)  # type: ignore[arg-type]
    assert observation.records[JobId("1")].state is SlurmState.OTHER
    assert not cluster.store.jobs()


def test_a_forgotten_job_is_open_until_the_accounting_has_answered() -> None:
    """Its end would be lost if its record were closed meanwhile."""
    cluster = forgetful_cluster()
    cluster.is_pending = True
    before = cluster.store.jobs()
    cluster.comments["2"] = "hops:reqs=2"
    observation = observe(cluster, cluster.store, 8)  # type: ignore[arg-type]
    assert set(observation.records) == {"2"}
    assert cluster.store.jobs()[JobId("1")] == before[JobId("1")]
    cluster.is_pending = False
    assert cluster.workloads().keys() == {"1", "2"}
    assert set(cluster.store.jobs()) == {"2"}

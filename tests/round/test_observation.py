"""How jobs are assigned to workloads from one reading to the next."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from memory_store import MemoryStore

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

    def read(self) -> Reading:
        jobs = [
            JobReading(
                JobId(number), UserName("ann"), 1, "train", comment, "main",
                SlurmState.PENDING, self.submit, command="/home/ann/train.sh", script=self.script,
            )
            for number, comment in self.comments.items()
        ]  # fmt: skip
        return Reading(1000.0, (), tuple(jobs))

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

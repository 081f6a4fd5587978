"""After a job ran out of memory on a type, it is not given as few GPUs of that type again."""

from __future__ import annotations

from hopsd.core.placement.pools import pools_of
from hopsd.core.placement.shortages import KNOWN_SECONDS, Shortages
from hopsd.model.ids import GpuType, JobId, NodeName, UserName, WorkloadName
from hopsd.model.job import Job, Node, ThroughputTable
from hopsd.model.knowledge import Shortage

OLD, NEW = GpuType("v100"), GpuType("a100")
WORKLOAD = WorkloadName("resnet")
POOLS = pools_of([Node(NodeName("n0"), OLD, 8, 8), Node(NodeName("n1"), NEW, 8, 8)])
TABLES = {kind: ThroughputTable({1: 10.0}) for kind in (OLD, NEW)}


def job(*reqs: int, user: str = "alice") -> Job:
    return Job(JobId("1"), UserName(user), 0.0, 0.0, reqs, TABLES)


def shortage(kind: GpuType, gpus: int, time: float = 0.0) -> Shortage:
    return Shortage(UserName("alice"), WORKLOAD, kind, gpus, time)


def test_counts_that_ran_out_of_memory_are_excluded_on_that_type() -> None:
    avoiding_job, note = Shortages([shortage(OLD, 2)], 1.0).avoid(job(1, 2, 4), WORKLOAD, POOLS)
    assert [n for n in (1, 2, 4) if avoiding_job.rules.enough(OLD, n)] == [4]
    assert all(avoiding_job.rules.enough(NEW, n) for n in (1, 2, 4))
    assert note == "it gets only 4 v100 GPUs or more, since it ran out of GPU memory on 2"


def test_a_type_without_larger_counts_is_excluded() -> None:
    avoiding_job, note = Shortages([shortage(OLD, 4)], 1.0).avoid(job(1, 4), WORKLOAD, POOLS)
    assert not any(avoiding_job.rules.enough(OLD, n) for n in (1, 4))
    assert note == "it gets no v100 GPUs, since it ran out of GPU memory on 4"


def test_a_job_that_could_run_nowhere_else_keeps_all_counts() -> None:
    whole_job = job(1, 4)
    result, note = Shortages([shortage(OLD, 4), shortage(NEW, 4)], 1.0).avoid(
        whole_job, WORKLOAD, POOLS
    )
    assert result == whole_job
    assert "on 4 a100 and 4 v100" in note
    for_now = Shortages([shortage(OLD, 4), shortage(NEW, 4)], 1.0)
    waits, note = for_now.avoid(whole_job, WORKLOAD, POOLS, lasting=False)
    assert not waits.rules.enough(OLD, 4)
    assert "it gets no" in note
    larger = Shortages([shortage(OLD, 1), shortage(NEW, 4)], 1.0).avoid(whole_job, WORKLOAD, POOLS)[
        0
    ]
    assert larger.rules.enough(OLD, 4)
    assert not larger.rules.enough(NEW, 4)


def test_a_shortage_applies_to_its_user_and_workload_for_a_week() -> None:
    shortages = Shortages([shortage(OLD, 4)], KNOWN_SECONDS - 1.0)
    assert shortages.avoid(job(1), WORKLOAD, POOLS)[1]
    assert shortages.avoid(job(1, user="bob"), WORKLOAD, POOLS) == (job(1, user="bob"), "")
    assert shortages.avoid(job(1), WorkloadName("bert"), POOLS) == (job(1), "")
    expired_shortages = Shortages([shortage(OLD, 4)], KNOWN_SECONDS)
    assert expired_shortages.avoid(job(1), WORKLOAD, POOLS) == (job(1), "")

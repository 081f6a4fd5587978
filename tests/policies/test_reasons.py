"""What users are told about why their jobs wait."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hopsd.core.placement.remaining_limits import limits_after
from hopsd.core.queue.service_window import blocking_limits
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, Node, ThroughputTable
from hopsd.model.plan import PlanSettings, RoundInfo, Snapshot
from hopsd.model.reason import without_jobs
from hopsd.model.rules import Limit, Rules
from hopsd.policies.reasons import lost_to_others, nothing_fits, over_limit
from hopsd.policies.registry import get

ASKS = "it asks for 2 GPUs or more"


def job(name: str, gpus: int, allocation: Allocation | None = None) -> Job:
    tables = {GpuType("a"): ThroughputTable({gpus: 1.0})}
    running = allocation or Allocation()
    return Job(
        JobId(name),
        UserName("u"),
        submit=0.0,
        wait_seconds=0.0,
        reqs=(gpus,),
        throughput=tables,
        running=running,
    )


def test_running_jobs_come_before_waiting_ones_in_the_reason_of_a_limit() -> None:
    holder, competing = (job(name, 2, Allocation.of({f"n{name}": 2})) for name in "12")
    first, last = job("3", 1), job("4", 2)
    limited_ids = frozenset(JobId(name) for name in "1234")
    texts = []
    for limit in (Limit("QOS small", limited_ids, gpus=5), Limit("QOS few", limited_ids, count=3)):
        limits_left = limits_after([limit], [holder])
        blocked_jobs = blocking_limits([competing, first, last], 100, limits_left)
        texts.append(over_limit(last, blocked_jobs[last.id]).text)
    assert texts == [
        f"QOS small: 4 of 5 GPUs in use by 1, 2; 1 of 5 GPUs asked for by 3; {ASKS}",
        f"QOS few: 2 of 3 jobs running: 1, 2; 1 of 3 jobs before it: 3; {ASKS}",
    ]
    assert [without_jobs(text, {"2"}) for text in texts] == [
        f"QOS small: 4 of 5 GPUs in use by 2, others; 1 of 5 GPUs asked for by others; {ASKS}",
        f"QOS few: 2 of 3 jobs running: 2, others; 1 of 3 jobs before it: others; {ASKS}",
    ]


@pytest.mark.parametrize(("gpus", "fragments"), [((64,), 0), ((3, 3), 1)])
def test_gpus_beside_an_impossible_job_are_no_fragments(
    gpus: tuple[int, ...], fragments: int
) -> None:
    jobs = tuple(job(str(number), count) for number, count in enumerate(gpus))
    nodes = (Node(NodeName("n0"), GpuType("a"), 4, 4),)
    for name in ("hops", "hops+"):
        snapshot = Snapshot(0.0, RoundInfo(first=True, seconds=60.0), nodes, jobs)
        plan = get(name)(snapshot, PlanSettings())
        assert plan.fragments == fragments


def idle(name: str, gpu_type: str, count: int) -> tuple[Node, int]:
    return Node(NodeName(name), GpuType(gpu_type), 8, count), count


def test_cpus_do_not_count_as_idle_gpus() -> None:
    """A job of 2 GPUs next to 2 idle CPUs that it does not accept."""
    nodes = [idle("n0", "a", 1), idle("n1", "cpu", 2)]
    assert nothing_fits(job("1", 2), nodes).text == (
        "no placement of 2 GPUs for it: 1 idle on nodes that it may use, at most 1 on one node;"
        " 2 CPUs idle on nodes that it may not use"
    )


def test_nodes_excluded_by_the_script_are_counted_separately() -> None:
    nodes = [idle("n0", "a", 1), idle("n1", "a", 4), idle("n2", "a", 0), idle("n3", "b", 3)]
    bound = replace(job("1", 2), rules=Rules(nodes=frozenset({NodeName("n0"), NodeName("n2")})))
    assert nothing_fits(bound, nodes).text == (
        "no placement of 2 GPUs for it: 1 idle on nodes that it may use, at most 1 on one node;"
        " 7 GPUs idle on nodes that it may not use"
    )


def test_a_full_cluster_is_reported_as_full() -> None:
    assert nothing_fits(job("1", 1), [idle("n0", "a", 0)]).text == (
        "no placement of 1 GPU for it: none is idle on nodes that it may use"
    )


def test_one_job_and_one_configuration_are_singular() -> None:
    assert lost_to_others(job("1", 1), 1, 0.5, 1).text == (
        "its priority is 0.5, and 1 job placed gained more than its only configuration (of 1 GPU)"
        " would"
    )

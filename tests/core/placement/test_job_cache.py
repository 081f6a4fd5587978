"""Answers about jobs' speeds, remembered from one plan to the next."""

from __future__ import annotations

from dataclasses import replace

from hopsd.core.placement.pools import job_cache
from hopsd.core.placement.sensitivity import JobCache
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, Node, ThroughputTable

A = GpuType("a")
NODES = tuple(Node(NodeName(f"n{i}"), A, 4, 4) for i in range(2))


def job(speed: float) -> Job:
    return Job(
        JobId("1"),
        UserName("u"),
        submit=0.0,
        wait_seconds=0.0,
        reqs=(1,),
        throughput={A: ThroughputTable({1: speed})},
    )


def speed(cached_job: Job, store: JobCache, calls: list[float], key: str = "speed") -> float:
    def work() -> float:
        calls.append(cached_job.throughput[A].aggregated[1])
        return calls[-1]

    return store.lookup(cached_job, key, work)


def test_jobs_with_the_same_tables_share_an_answer() -> None:
    twin, store, calls = job(2.0), JobCache(), list[float]()
    copy = replace(twin, id=JobId("2"), wait_seconds=50.0)
    assert [speed(twin, store, calls), speed(copy, store, calls)] == [2.0, 2.0]
    assert calls == [2.0]
    speed(twin, store, calls, key="something else")
    assert calls == [2.0, 2.0]


def test_an_answer_of_none_is_cached() -> None:
    cached_job, store, calls = job(2.0), JobCache(), list[str]()
    for _ in range(2):
        assert store.lookup(cached_job, "x", lambda: calls.append("asked")) is None
    assert calls == ["asked"]


def test_only_answers_used_by_the_last_plan_are_kept() -> None:
    current_job, dropped_job, calls = job(1.0), job(2.0), list[float]()
    first = JobCache()
    speed(current_job, first, calls), speed(dropped_job, first, calls)
    second = JobCache(first)
    speed(current_job, second, calls)
    assert calls == [1.0, 2.0]
    third = JobCache(second)
    speed(current_job, third, calls), speed(dropped_job, third, calls)
    assert calls == [1.0, 2.0, 2.0]


def test_new_tables_are_never_mistaken_for_old_ones() -> None:
    """CPython may give a new table the address, and so the id, of a deleted one."""
    store, calls = JobCache(), list[float]()
    for number in range(200):
        assert speed(job(float(number)), store, calls) == number


def test_answers_are_cached_only_for_plans_on_the_same_servers() -> None:
    cached_job, calls = job(1.0), list[float]()
    speed(cached_job, job_cache(NODES), calls)
    busy = tuple(replace(node, idle=1) for node in NODES)
    speed(cached_job, job_cache(busy), calls)
    assert calls == [1.0]
    speed(cached_job, job_cache(NODES[:1]), calls)
    assert calls == [1.0, 1.0]
    speed(cached_job, job_cache(list(NODES)), calls)
    assert calls == [1.0, 1.0, 1.0]

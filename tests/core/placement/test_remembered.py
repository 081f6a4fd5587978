"""QueryService about jobs' speeds, remembered from one plan to the next."""

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


def speed(of: Job, store: JobCache, asked: list[float], about: str = "speed") -> float:
    def work() -> float:
        asked.append(of.throughput[A].aggregated[1])
        return asked[-1]

    return store.of(of, about, work)


def test_jobs_with_the_same_tables_share_an_answer() -> None:
    one, store, asked = job(2.0), JobCache(), list[float]()
    other = replace(one, id=JobId("2"), wait_seconds=50.0)
    assert [speed(one, store, asked), speed(other, store, asked)] == [2.0, 2.0]
    assert asked == [2.0]
    speed(one, store, asked, about="something else")
    assert asked == [2.0, 2.0]


def test_none_is_an_answer_too() -> None:
    one, store, asked = job(2.0), JobCache(), list[str]()
    for _ in range(2):
        assert store.of(one, "x", lambda: asked.append("asked")) is None
    assert asked == ["asked"]


def test_what_the_last_plan_asked_for_is_kept_and_the_rest_dropped() -> None:
    kept, dropped, asked = job(1.0), job(2.0), list[float]()
    first = JobCache()
    speed(kept, first, asked), speed(dropped, first, asked)
    second = JobCache(first)
    speed(kept, second, asked)
    assert asked == [1.0, 2.0]
    third = JobCache(second)
    speed(kept, third, asked), speed(dropped, third, asked)
    assert asked == [1.0, 2.0, 2.0]


def test_new_tables_are_never_taken_for_old_ones() -> None:
    """CPython gives a new table the place, and so the id, of one that is gone."""
    store, asked = JobCache(), list[float]()
    for number in range(200):
        assert speed(job(float(number)), store, asked) == number


def test_plans_on_the_same_servers_remember_and_on_others_do_not() -> None:
    one, asked = job(1.0), list[float]()
    speed(one, job_cache(NODES), asked)
    busy = tuple(replace(node, idle=1) for node in NODES)
    speed(one, job_cache(busy), asked)
    assert asked == [1.0]
    speed(one, job_cache(NODES[:1]), asked)
    assert asked == [1.0, 1.0]
    speed(one, job_cache(list(NODES)), asked)
    assert asked == [1.0, 1.0, 1.0]

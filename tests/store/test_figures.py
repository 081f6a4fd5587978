"""Figures of a period, compared with sums computed here from the same jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean, median
from typing import Any

import pytest
from fixtures_postgres import Databases, connected_store
from values import ended_job, job, running

from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, UserName
from hopsd.model.journal import DiaryEntry, GpuUse
from hopsd.store.history import DAY_SECONDS, History
from hopsd.store.postgres import PostgresStore

A, B = GpuType("a"), GpuType("b")


def test_gpu_use_is_summed_by_hour_and_day(store: History) -> None:
    store.add_gpu_use([GpuUse(0.0, A, hops=1.0), GpuUse(3600.0, A, idle=2.0)])
    second_use = GpuUse(3600.0, A, idle=3.0, down=1.0, rack_fragmented=5.0)
    store.add_gpu_use([second_use, GpuUse(3600.0, B, plain=4.0)])
    store.add_gpu_use([])
    a = GpuUse(3600.0, A, idle=5.0, down=1.0, rack_fragmented=5.0)
    second = (a, GpuUse(3600.0, B, plain=4.0))
    assert store.gpu_use(3600.0, 7200.0) == second
    assert store.gpu_use(4000.0, 7200.0) == second  # the current hour, which is not over
    day = (replace(a, hour=0.0, hops=1.0), GpuUse(0.0, B, plain=4.0))
    assert store.gpu_use(0.0, 7200.0, DAY_SECONDS) == day
    assert store.prune(3600.0 + DAY_SECONDS, 1.0)["gpu_use"] == 1
    assert store.gpu_use(0.0, 7200.0) == second


def test_the_diary_keeps_the_first_plan_and_is_deleted_with_its_job(
    postgres_store: PostgresStore,
) -> None:
    entry = DiaryEntry(JobId("1"), 100.0, 2, "a100", 3600.0)
    postgres_store.save_jobs([running("1", {"n0": 2}, since=200.0), job("2", submit=300.0)])
    postgres_store.save_diary([entry, DiaryEntry(JobId("2"), 300.0, 1)])
    postgres_store.save_diary([replace(entry, planned=150.0, nodes=Allocation.of({"n1": 2}))])
    postgres_store.save_diary([replace(entry, planned=170.0)])
    first, second = postgres_store.diary(0.0, 1000.0, 10)
    assert (first["planned"], first["nodes"], first["limit"]) == (150.0, {"n1": 2}, 3600.0)
    assert (first["runs"], first["gpu_type"]) == ([[200.0, None, 2]], "a100")
    assert (second["id"], second["runs"], second["planned"]) == ("2", [], None)
    assert [row["id"] for row in postgres_store.diary(0.0, 1000.0, 1)] == ["2"]
    older = postgres_store.diary(0.0, 1000.0, 9, (second["submit"], second["id"]))
    assert [row["id"] for row in older] == ["1"]
    assert postgres_store.diary(0.0, 1000.0, 9, (first["submit"], "1")) == []
    assert [row["id"] for row in postgres_store.diary(0.0, 200.0, 10)] == ["1"]
    postgres_store.save_jobs([ended_job("1", 500.0)])
    assert postgres_store.prune(500.5 + DAY_SECONDS, 1.0)["diary"] == 1


@pytest.fixture(params=[pytest.param("machine_postgres", marks=pytest.mark.live)])
def postgres_store(request: pytest.FixtureRequest) -> Iterator[PostgresStore]:
    databases = request.getfixturevalue(request.param)
    assert isinstance(databases, Databases)
    with connected_store(databases.empty_database()) as store:
        yield store


def test_figures_of_a_period_match_values_by_hand(postgres_store: PostgresStore) -> None:
    lab: dict[str, Any] = {"account": "lab", "age_seconds": 100.0}
    bob: dict[str, Any] = {"user": UserName("bob\x1b[31m"), "account": "phys"}
    ran = [
        ended_job(
            "1", 1000.0, wait_seconds=50.0, run_seconds=100.0, attained_gpu_seconds=100.0, **lab
        ),
        ended_job(
            "2", 1100.0, wait_seconds=10.0, run_seconds=100.0, attained_gpu_seconds=300.0, **lab
        ),
        ended_job(
            "3", 1200.0, wait_seconds=400.0, run_seconds=4.0, attained_gpu_seconds=32.0, **bob
        ),
    ]
    outside_jobs = [
        ended_job("4", 3000.0, wait_seconds=1.0, run_seconds=1.0),  # ended later
        ended_job("5", 1000.0, wait_seconds=1.0, run_seconds=0.0),  # never ran
        ended_job(
            "6", 1000.0, wait_seconds=1.0, run_seconds=9.0, comment=""
        ),  # from the accounting
        job("7"),
    ]
    postgres_store.save_jobs([*ran, *outside_jobs])
    figures = postgres_store.figures(500.0, 2000.0, 30.0, None)
    assert figures["first"] == 100.0
    rows = {(row["by"], row["name"]): row for row in figures["waits"]}
    assert set(rows) == {("all", ""), ("hops", ""), ("size", "1"), ("size", "4"), ("size", "8"),
                         ("user", "alice"), ("user", "bob\x1b[31m"), ("account", "lab"),
                         ("account", "phys")}  # fmt: skip
    totals = rows["all", ""]
    assert (totals["jobs"], totals["gpu_seconds"]) == (3, 432.0)
    assert totals["mean_wait"] == pytest.approx(fmean([50.0, 10.0, 400.0]))
    assert totals["median_wait"] == median([50.0, 10.0, 400.0])
    assert totals["mean_ratio"] == pytest.approx(fmean([0.5, 0.1, 100.0]))
    assert totals["mean_slowdown"] == pytest.approx(fmean([1.5, 1.1, 40.4]))
    assert rows["account", "lab"]["mean_wait"] == 30.0
    assert figures["ratios"] == [0, 1, 0, 1, 0, 0, 0, 1]
    figures_of_user = postgres_store.figures(500.0, 2000.0, 30.0, UserName("alice"))
    assert {row["name"] for row in figures_of_user["waits"] if row["by"] == "user"} == {"alice"}
    empty_figures = postgres_store.figures(5000.0, 6000.0, 30.0, None)
    assert (empty_figures["waits"], sum(empty_figures["ratios"])) == ([], 0)


def test_size_classes_are_powers_of_two(postgres_store: PostgresStore) -> None:
    gpus = (1, 2, 3, 4, 5, 8, 9, 64, 65, 4096, 4097, 65536)
    postgres_store.save_jobs(
        ended_job(str(n), 400.0, run_seconds=7.0, attained_gpu_seconds=7.0 * n) for n in gpus
    )
    waits = postgres_store.figures(0.0, 1000.0, 30.0, None)["waits"]
    sizes = {int(row["name"]): row["jobs"] for row in waits if row["by"] == "size"}
    assert sizes == Counter(1 << (n - 1).bit_length() for n in gpus)


def test_gpu_hours_are_divided_by_their_use(postgres_store: PostgresStore) -> None:
    """The job has a profile run, a run, and another run on other nodes, which is a restart."""
    postgres_store.save_jobs([running("1", {"n0": 1}, since=110.0, profiling=True)])
    postgres_store.save_jobs([running("1", {"n0": 2}, since=200.0)])
    postgres_store.save_jobs([running("1", {"n1": 4, "n2": 2}, since=300.0, restart_seconds=20.0)])
    postgres_store.save_jobs([ended_job("1", 400.0, restart_seconds=20.0, run_seconds=200.0)])
    spending = postgres_store.figures(150.0, 1000.0, 30.0, None)["spent"]
    assert spending["profiling"] == 50.0  # only the part after 150
    assert spending["profile_runs"] == 0  # it began before the period
    assert spending["training"] == 100 * 2 + 100 * 6
    assert (spending["restarts"], spending["restarting"]) == (1, 20 * 6)
    assert postgres_store.figures(100.0, 1000.0, 30.0, None)["spent"]["profile_runs"] == 1
    assert postgres_store.figures(0.0, 50.0, 30.0, None)["spent"]["training"] == 0
    # A run that is not over counts until the end of the period.
    postgres_store.save_jobs([running("2", {"n0": 1}, since=600.0)])
    assert postgres_store.figures(500.0, 700.0, 30.0, None)["spent"]["training"] == 100


def test_jobs_seen_by_a_shadow_do_not_count_as_hops_jobs(postgres_store: PostgresStore) -> None:
    ran = {"run_seconds": 10.0, "attained_gpu_seconds": 20.0}
    postgres_store.save_jobs(
        [ended_job("1", 400.0, submit=100.0, **ran), ended_job("2", 900.0, submit=500.0, **ran)]
    )
    postgres_store.save_diary([DiaryEntry(JobId("1"), 100.0, 2)])
    postgres_store.save_jobs([running("3", {"n0": 4}, since=110.0, submit=100.0)])
    postgres_store.save_jobs([ended_job("3", 210.0, submit=100.0, **ran)])
    postgres_store.save_diary([DiaryEntry(JobId("3"), 100.0, 4)])
    shadow = postgres_store.figures(0.0, 1000.0, 30.0, None, shadow=True)
    jobs = {row["by"]: row["jobs"] for row in shadow["waits"]}
    assert (jobs["all"], jobs["hops"], sum(shadow["ratios"])) == (3, 1, 3)
    assert shadow["spent"]["training"] == 400.0
    figures = postgres_store.figures(0.0, 1000.0, 30.0, None)
    jobs = {row["by"]: row["jobs"] for row in figures["waits"]}
    assert (jobs["all"], jobs["hops"], figures["slurm_jobs"], sum(figures["ratios"])) == (
        1,
        1,
        2,
        1,
    )
    assert figures["spent"]["training"] == 0.0
    postgres_store.save_diary([DiaryEntry(JobId("2"), 500.0, 2)])
    assert postgres_store.figures(0.0, 1000.0, 30.0, None)["waits"] == []


def test_jobs_seen_by_a_shadow_precede_the_first_hops_job(postgres_store: PostgresStore) -> None:
    postgres_store.save_jobs(
        [ended_job("1", 400.0, submit=100.0), ended_job("2", 900.0, submit=500.0)]
    )
    assert postgres_store.figures(0.0, 1000.0, 30.0, None)["first"] == 100.0
    postgres_store.save_diary([DiaryEntry(JobId("1"), 100.0, 2)])
    assert postgres_store.figures(0.0, 1000.0, 30.0, None)["first"] == 500.0
    postgres_store.save_diary([DiaryEntry(JobId("2"), 500.0, 2)])
    assert postgres_store.figures(0.0, 1000.0, 30.0, None)["first"] is None

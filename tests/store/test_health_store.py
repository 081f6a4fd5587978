"""The records by which nodes are judged, read from a real database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from fixtures_postgres import Databases, connected_store
from values import ended_job, running

from hopsd.model.ids import GpuType, JobId, NodeName, UserName, WorkloadName
from hopsd.model.knowledge import ThroughputRecord
from hopsd.model.reading import SlurmState
from hopsd.store.postgres import PostgresStore

pytestmark = pytest.mark.live

ALICE = UserName("alice")
RECORD = ThroughputRecord(
    WorkloadName("resnet50"), GpuType("a"), NodeName("n0"), 2, 1, 50.0, 300.0, ALICE, 32.0
)


@pytest.fixture
def postgres_store(machine_postgres: Databases) -> Iterator[PostgresStore]:
    with connected_store(machine_postgres.empty_database()) as store:
        yield store


def test_a_report_belongs_to_the_run_that_was_there(postgres_store: PostgresStore) -> None:
    postgres_store.save_jobs(
        [running("1", {"n0": 2}, since=200.0), running("2", {"n1": 2}, since=200.0)]
    )
    postgres_store.add_throughput(
        [RECORD, replace(RECORD, at=100.0), replace(RECORD, user=UserName("bob"))]
    )
    speeds, ends, stays = postgres_store.health(0.0)
    assert [(s.at, s.job, s.nodes, s.per_gpu, s.batch) for s in speeds] == [
        (300.0, "1", {"n0": 2}, 50.0, 32.0)
    ]
    assert ends == []
    assert [(s.job, s.nodes, s.start, s.end) for s in stays] == [
        ("1", {"n0": 2}, 200.0, None),
        ("2", {"n1": 2}, 200.0, None),
    ]
    assert postgres_store.health(301.0)[:2] == ([], [])


def test_a_report_that_two_runs_may_have_made_is_not_used(postgres_store: PostgresStore) -> None:
    postgres_store.save_jobs(
        [running("1", {"n0": 2}, since=200.0), running("2", {"n0": 2}, since=200.0)]
    )
    postgres_store.add_throughput([RECORD])
    assert postgres_store.health(0.0)[0] == []
    postgres_store.add_throughput([replace(RECORD, at=310.0, job=JobId("2"), gpu=None)])
    assert [s.job for s in postgres_store.health(0.0)[0]] == ["2"]


def test_a_report_of_a_single_gpu_names_it(postgres_store: PostgresStore) -> None:
    """This also holds if a user has several such jobs on the server, and after pruning."""
    jobs = [running(job, {"n0": 1}, since=200.0) for job in ("1", "2")]
    postgres_store.save_jobs(jobs)
    single = replace(RECORD, gpus=1)
    postgres_store.add_throughput(
        replace(single, job=JobId(job), gpu=gpu, at=300.0 + offset + 0.1 * gpu)
        for job, gpu in (("1", 0), ("2", 3))
        for offset in range(40)
    )
    postgres_store.prune(400.0, 90.0)
    speeds = postgres_store.health(0.0)[0]
    assert {(s.job, s.gpu) for s in speeds} == {("1", 0), ("2", 3)}
    assert len(speeds) == 2 * 32


def test_a_run_over_several_nodes_reports_once(postgres_store: PostgresStore) -> None:
    postgres_store.save_jobs([running("1", {"n0": 2, "n1": 2}, since=200.0)])
    reports_of_nodes = [replace(RECORD, node=NodeName(n), gpus=4, nodes=2) for n in ("n0", "n1")]
    postgres_store.add_throughput(reports_of_nodes)
    speeds = postgres_store.health(0.0)[0]
    assert [(s.job, s.nodes) for s in speeds] == [("1", {"n0": 2, "n1": 2})]


def test_an_end_counts_for_the_last_nodes_of_the_job(postgres_store: PostgresStore) -> None:
    postgres_store.save_jobs([running("1", {"n0": 2}, since=200.0)])
    postgres_store.save_jobs([running("1", {"n1": 2}, since=400.0)])
    postgres_store.save_jobs([ended_job("1", 500.0, state=SlurmState.NODE_FAIL)])
    ends = postgres_store.health(0.0)[1]
    assert [(e.at, e.job, e.nodes, e.state) for e in ends] == [(500.0, "1", {"n1": 2}, "NODE_FAIL")]


def test_a_failed_launch_counts_for_the_nodes_of_that_time(
    postgres_store: PostgresStore,
) -> None:
    postgres_store.save_jobs([running("1", {"n0": 2}, since=200.0)])
    postgres_store.add_event("launch_failed", "it is held", job=JobId("1"), time=203.0)
    postgres_store.add_event("launch_failed", "once more", job=JobId("1"), time=204.0)
    postgres_store.save_jobs([running("1", {"n1": 2}, since=400.0)])
    ends = postgres_store.health(0.0)[1]
    assert [(e.at, e.nodes, e.state) for e in ends] == [(203.0, {"n0": 2}, "LAUNCH_FAILED")]
    postgres_store.save_jobs([ended_job("1", 500.0)])
    assert [e.state for e in postgres_store.health(0.0)[1]] == ["COMPLETED", "LAUNCH_FAILED"]
    assert [e.state for e in postgres_store.health(300.0)[1]] == ["COMPLETED"]

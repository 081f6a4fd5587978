"""A leading hopsd reads its jobs once, keeps them in memory and writes only changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import count

import psycopg
import pytest
from conftest import LeadingStore, leading_store
from fixtures_postgres import Databases
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memory_store import MemoryStore
from values import ended_job, job, plan_record, running

from hopsd.errors import NotLeaderError, StoreError
from hopsd.model.allocation import Allocation
from hopsd.model.history import JobRecord
from hopsd.model.ids import GpuType, JobId
from hopsd.model.step import OutcomeStatus, Step, StepKind, StepOutcome
from hopsd.store import jobs
from hopsd.store.leader import Leader
from hopsd.store.postgres import PostgresStore

pytestmark = pytest.mark.live


@pytest.fixture
def dsn(wheel_postgres: Databases) -> str:
    return wheel_postgres.new()


@pytest.fixture
def store(dsn: str) -> Iterator[LeadingStore]:
    with leading_store(dsn) as store:
        yield store


def test_only_the_figures_of_unchanged_jobs_are_written(
    store: LeadingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole: list[JobId] = []
    replace_records = jobs._replace

    def count_records(connection: jobs.Connection, records: dict[JobId, JobRecord]) -> None:
        whole.extend(records)
        replace_records(connection, records)

    monkeypatch.setattr(jobs, "_replace", count_records)
    first = [job(str(number)) for number in range(50)]
    store.save_jobs(first)
    assert len(whole) == 50
    store.save_jobs([replace(record, seen=200.0, wait_seconds=90.0) for record in first[1:]])
    assert len(whole) == 50
    store.save_jobs([running("0", {"n0": 1}, 190.0), *first[1:]])
    assert whole[50:] == ["0"]
    assert [placement.job for placement in store.placements()] == ["0"]


def test_records_written_by_another_leader_are_read(dsn: str) -> None:
    with leading_store(dsn) as store, closing(Leader(dsn)) as second_leader:
        store.save_jobs([job("1"), job("2")])
        assert store._leader is not None
        store._leader.close()
        second_leader.acquire()
        with PostgresStore(dsn, leader=second_leader) as second_store:
            second_store.save_jobs([ended_job("1", 200.0), job("3")])
        with pytest.raises(NotLeaderError):
            store.save_jobs([job("1", seen=300.0)])
        second_leader.close()
        store._leader.acquire()
        assert set(store.jobs()) == {"2", "3"}


def test_a_restored_database_with_a_lower_epoch_is_read(dsn: str, store: LeadingStore) -> None:
    store.save_jobs([job("1")])
    with psycopg.connect(dsn) as connection:
        connection.execute("UPDATE leadership SET epoch = epoch - 1")
        connection.execute("UPDATE jobs SET name = 'older'")
    leader = store._leader
    assert leader is not None
    leader.close()
    leader.acquire()
    assert store.jobs()[JobId("1")].name == "older"
    store.save_jobs([job("1", seen=150.0)])
    assert store.jobs() == {"1": job("1", seen=150.0)}


def test_a_vacated_placement_continues_if_the_job_is_seen_there_again(store: LeadingStore) -> None:
    preempted_job = JobId("1")
    store.save_jobs([running("1", {"n0": 2}, 150.0)])
    step = Step(preempted_job, StepKind.PREEMPT, Allocation.of({"n0": 2}))
    plan = store.begin_plan(plan_record(None, step, time=190.0))
    store.finish_plan(plan, [StepOutcome(step, OutcomeStatus.DONE, vacated=200.0)], 200.0)
    store.jobs()
    store.save_jobs([running("1", {"n0": 2}, 150.0, seen=210.0)])
    assert [(p.start, p.end) for p in store.placements(preempted_job)] == [(150.0, None)]


def test_records_are_read_again_after_a_refused_write(store: LeadingStore) -> None:
    store.save_jobs([job("1")])
    with pytest.raises(StoreError):
        store.save_jobs([job("1", seen=150.0), job("2", restarts=2**40)])
    assert store.jobs() == {"1": job("1")}


def test_deleted_records_are_rewritten_completely(dsn: str, store: LeadingStore) -> None:
    store.save_jobs([job("1"), job("2")])
    with PostgresStore(dsn) as operator:
        operator.save_jobs([ended_job("2", 150.0)])
    store.save_jobs([job("1", seen=160.0), job("2", seen=160.0)])
    with PostgresStore(dsn) as reader:
        assert reader.jobs()[JobId("1")].seen == 160.0


JOBS = ("1", "2")
EXAMPLES = count()
NODES = st.sampled_from([{}, {"n0": 2}, {"n1": 2}])


@st.composite
def looks(draw: st.DrawFn) -> list[object]:
    """Successive records of jobs, with an occasional change by a plan."""
    history_of_looks: list[object] = []
    now, unstarted_jobs = 200.0, list(JOBS)
    for _ in range(draw(st.integers(1, 8))):
        if not unstarted_jobs:
            break
        now += draw(st.integers(1, 9)) + 0.5
        name, nodes = draw(st.sampled_from(unstarted_jobs)), draw(NODES)
        if draw(st.integers(0, 4)) == 0:
            history_of_looks.append((name, now))
            continue
        record = running(name, nodes, 150.0) if nodes else job(name)
        ends = draw(st.integers(0, 6)) == 0
        if ends:
            unstarted_jobs.remove(name)
        history_of_looks.append(
            replace(
                record,
                seen=now,
                wait_seconds=draw(st.sampled_from([0.0, 7.0])),
                run_seconds_by_type=draw(st.sampled_from([{}, {GpuType("a"): 3.0}])),
                end=now if ends else None,
            )
        )
    return history_of_looks


@pytest.mark.long
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(given_looks=looks())
def test_records_equal_those_of_a_store_that_writes_everything(
    store: LeadingStore, given_looks: list[object]
) -> None:
    number, plain = next(EXAMPLES), MemoryStore()
    for compared_store in (store, plain):
        for look in given_looks:
            compared_store.jobs()
            if isinstance(look, JobRecord):
                compared_store.save_jobs([replace(look, id=JobId(f"{number}/{look.id}"))])
            elif isinstance(look, tuple):
                name, at = look
                step = Step(JobId(f"{number}/{name}"), StepKind.PREEMPT, Allocation.of({"n0": 2}))
                plan = compared_store.begin_plan(plan_record(None, step, time=at))
                outcome = StepOutcome(step, OutcomeStatus.DONE, vacated=at)
                compared_store.finish_plan(plan, [outcome], at)
    for name in JOBS:
        job_id = JobId(f"{number}/{name}")
        assert store.jobs().get(job_id) == plain.jobs().get(job_id)
        assert store.placements(job_id) == plain.placements(job_id)

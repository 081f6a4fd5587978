"""The measured speeds that a leading hopsd keeps in memory equal those in the database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from conftest import LeadingStore, leading_store
from fixtures_postgres import Databases
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hopsd.errors import NotLeaderError
from hopsd.model.ids import GpuType, NodeName, UserName, WorkloadName
from hopsd.model.knowledge import ThroughputRecord
from hopsd.store import throughput
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


def record(time: float, per_gpu: float = 1.0, node: str = "n0") -> ThroughputRecord:
    workload, gpu_type = WorkloadName("w"), GpuType("t")
    return ThroughputRecord(
        workload, gpu_type, NodeName(node), 2, 1, per_gpu, time, UserName("alice"), 8.0
    )


RECORDS = st.builds(
    record,
    st.sampled_from([10.0, 20.0, 30.0, 40.0]),
    st.sampled_from([1.0, 2.5]),
    st.sampled_from(["n0", "n1", "n\x00\ud800"]),
)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=st.lists(st.lists(RECORDS, max_size=6) | st.just("prune"), max_size=6))
def test_stored_records_are_remembered(
    dsn: str, monkeypatch: pytest.MonkeyPatch, steps: list[list[ThroughputRecord] | str]
) -> None:
    with monkeypatch.context() as context, leading_store(dsn) as store:
        context.setattr(throughput, "NEWEST", 3)
        with PostgresStore(dsn) as reader:
            for step in steps:
                if isinstance(step, str):
                    store.prune(25.0, 5.0 / 86_400.0)
                else:
                    store.add_throughput(step)
                known_records, stored_records = (
                    store.knowledge().records,
                    reader.knowledge().records,
                )
                assert sorted(known_records, key=repr) == sorted(stored_records, key=repr)
                assert [r.at for r in known_records] == [r.at for r in stored_records]


def test_records_are_read_once(store: LeadingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: reading 120,000 records for every plan took 1.1 s."""
    store.add_throughput([record(10.0)])
    first = store.knowledge().records

    def read_again(connection: object) -> None:
        raise AssertionError

    monkeypatch.setattr(throughput, "newest", read_again)
    assert store.knowledge().records is first
    store.add_throughput([record(20.0)])
    assert [r.at for r in store.knowledge().records] == [10.0, 20.0]


def test_records_added_by_hopsctl_calibrate_are_seen(store: LeadingStore, dsn: str) -> None:
    store.add_throughput([record(10.0)])
    assert len(store.knowledge().records) == 1
    with PostgresStore(dsn) as calibrating_store:
        calibrating_store.add_throughput([record(5.0)])
    assert [r.at for r in store.knowledge().records] == [5.0, 10.0]


def test_records_are_read_again_after_another_leader(dsn: str) -> None:
    with closing(Leader(dsn)) as leader, PostgresStore(dsn, leader=leader) as store:
        leader.acquire()
        store.add_throughput([record(10.0)])
        assert len(store.knowledge().records) == 1
        leader.close()
        with closing(Leader(dsn)) as second, PostgresStore(dsn, leader=second) as second_store:
            second.acquire()
            second_store.add_throughput([record(20.0)])
        with pytest.raises(NotLeaderError):
            store.add_throughput([record(30.0)])
        leader.acquire()
        assert [r.at for r in store.knowledge().records] == [10.0, 20.0]

"""Both kinds of store, and PostgreSQL in the two available releases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager

import pytest
from fixtures_postgres import Databases, connected_store
from memory_store import MemoryStore

from hopsd.model.history import JobRecord
from hopsd.model.ids import JobId
from hopsd.store.history import History
from hopsd.store.leader import Leader
from hopsd.store.postgres import PostgresStore

SERVERS = ["machine_postgres", "wheel_postgres"]
LEADING_STORE = "leading"


@pytest.fixture(params=SERVERS)
def databases(request: pytest.FixtureRequest) -> Databases:
    fixture_value = request.getfixturevalue(request.param)
    assert isinstance(fixture_value, Databases)
    return fixture_value


class LeadingStore(PostgresStore):
    """The store of a leading hopsd; checks that the jobs it remembers are those in the database."""

    def __init__(self, dsn: str, leader: Leader) -> None:
        self._second_store = PostgresStore(dsn)
        super().__init__(dsn, leader=leader)

    def jobs(self) -> Mapping[JobId, JobRecord]:
        records = super().jobs()
        assert records == self._second_store.jobs()
        return records

    def close(self) -> None:
        super().close()
        self._second_store.close()


@contextmanager
def leading_store(dsn: str) -> Iterator[LeadingStore]:
    with closing(Leader(dsn)) as leader, LeadingStore(dsn, leader) as store:
        leader.acquire()
        store.jobs()
        yield store


@pytest.fixture(
    params=[
        "memory",
        *(pytest.param(server, marks=pytest.mark.live) for server in (*SERVERS, LEADING_STORE)),
    ]
)
def store(request: pytest.FixtureRequest) -> Iterator[History]:
    if request.param == "memory":
        yield MemoryStore()
        return
    if request.param == LEADING_STORE:
        with leading_store(request.getfixturevalue("wheel_postgres").new()) as store:
            yield store
        return
    with connected_store(request.getfixturevalue(request.param).empty_database()) as store:
        yield store

"""Both stores, and PostgreSQL in both releases that are at hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fixtures_postgres import Databases, connected_store
from memory_store import MemoryStore

from hopsd.store.history import History

SERVERS = ["machine_postgres", "wheel_postgres"]


@pytest.fixture(params=SERVERS)
def databases(request: pytest.FixtureRequest) -> Databases:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Databases)
    return found


@pytest.fixture(
    params=["memory", *(pytest.param(server, marks=pytest.mark.live) for server in SERVERS)]
)
def store(request: pytest.FixtureRequest) -> Iterator[History]:
    if request.param == "memory":
        yield MemoryStore()
        return
    with connected_store(request.getfixturevalue(request.param).emptied()) as store:
        yield store

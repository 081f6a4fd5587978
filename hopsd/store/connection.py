"""Connections to PostgreSQL: one pool, short transactions, one kind of error."""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from hopsd.breaker import Breaker
from hopsd.errors import ConfigError, StoreError, StoreUnavailableError

SCHEMA = "hops"
Connection = psycopg.Connection[tuple[Any, ...]]

SILENCE_SECONDS = 2.0
"""A server that is silent for this long is probed on another connection."""

_PING_SECONDS = 2
"""libpq's shortest time-out."""

_NO_ANSWER = f"no answer within {SILENCE_SECONDS + _PING_SECONDS:g} s"
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 5.0, 30.0

# A lost network is noticed within half a minute; a hanging query is cancelled after one minute.
_DEFAULTS = {
    "application_name": "hopsd",
    "connect_timeout": "4",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}
# The locks of a process stopped in mid-transaction must not keep another hopsd from leading.
_SERVER_OPTIONS = (
    f"-c search_path={SCHEMA} -c statement_timeout=60s"
    " -c idle_in_transaction_session_timeout=30s -c timezone=UTC"
)


def conninfo(dsn: str, **overrides: str) -> str:
    """Complete ``dsn`` with our defaults and ``overrides``.

    Raises:
        ConfigError: ``dsn`` is not a libpq connection string.
    """
    try:
        parameters = {key: str(value) for key, value in conninfo_to_dict(dsn).items()}
    except psycopg.ProgrammingError as error:
        raise ConfigError(
            "database.dsn is not a libpq connection string or URI; accepted for example:"
            " host=/run/postgresql dbname=hops"
        ) from error
    options = f"{_SERVER_OPTIONS} {parameters.pop('options', '')}".strip()
    return make_conninfo("", **(_DEFAULTS | parameters | overrides | {"options": options}))


def local_database(dsn: str, user: str) -> str | None:
    """The database that ``dsn`` means for ``user`` on this machine; None if it names a host.

    Raises:
        ConfigError: ``dsn`` is not a libpq connection string.
    """
    parameters = conninfo_to_dict(conninfo(dsn))
    host = str(parameters.get("host") or parameters.get("hostaddr") or "")
    if host and not host.startswith("/"):
        return None
    return str(parameters.get("dbname") or parameters.get("user") or user)


# Failures that matter are raised as StoreUnavailableError anyway.
logging.getLogger("psycopg.pool").setLevel(logging.ERROR)


class SilentError(psycopg.OperationalError):
    """PostgreSQL was silent for :data:`SILENCE_SECONDS`, and accepted no other connection."""


def postgres_breaker() -> Breaker:
    """Create a breaker for all connections to one PostgreSQL."""
    return Breaker("PostgreSQL", _FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS)


@contextmanager
def cut_off_when_silent(
    connection: Connection, answers: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Context manager that shuts ``connection`` down if its server is silent: libpq has no
    time-out.

    ``answers`` says whether the server answers elsewhere and so is only slow; it is called every
    :data:`SILENCE_SECONDS`. ``statement_timeout`` ends slow statements.

    Raises:
        SilentError: the connection was shut down.
    """
    has_finished, silent = threading.Event(), threading.Event()

    def watch() -> None:
        while not has_finished.wait(SILENCE_SECONDS):
            if not answers() and not has_finished.is_set():
                silent.set()
                _shut_down(connection)
                return

    threading.Thread(target=watch, name="silence", daemon=True).start()
    try:
        yield
    except psycopg.OperationalError as error:
        if silent.is_set():
            raise SilentError(_NO_ANSWER) from error
        raise
    finally:
        has_finished.set()


def ping(dsn: str) -> None:
    """Open a connection and close it; raises the psycopg.Error if that fails."""
    psycopg.connect(conninfo(dsn, connect_timeout=str(_PING_SECONDS))).close()


def answers(dsn: str) -> bool:
    """Whether PostgreSQL accepts another connection."""
    with suppress(psycopg.Error):
        ping(dsn)
        return True
    return False


def _shut_down(connection: Connection) -> None:
    """End the connection's reads and writes, so that a thread waiting for the server fails."""
    with (
        suppress(OSError, psycopg.Error),
        socket.socket(fileno=os.dup(connection.fileno())) as server_socket,
    ):
        server_socket.shutdown(socket.SHUT_RDWR)


class Database:
    """A pool that recovers by itself when PostgreSQL is back, behind a breaker."""

    def __init__(self, dsn: str, wait_seconds: float, breaker: Breaker) -> None:
        self._conninfo = conninfo(dsn)
        self._dsn = dsn
        self._breaker = breaker
        self._silent_check = threading.Event()
        # Reconnecting gives up early, so that the next request starts a fresh attempt instead
        # of waiting behind one that has backed off for minutes.
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            self._conninfo,
            min_size=1,
            max_size=4,
            timeout=wait_seconds,
            reconnect_timeout=1.0,
            check=self._check,
            open=False,
            name="hops",
        )
        self._pool.open()

    def close(self) -> None:
        self._pool.close()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Open a transaction: it is committed at the end, or rolled back by an exception.

        Raises:
            StoreUnavailableError: PostgreSQL does not answer.
            StoreError: PostgreSQL refused a statement.
        """
        with translated_errors(self._breaker):
            connection = self._connection()
            try:
                with cut_off_when_silent(connection, lambda: answers(self._dsn)), connection:
                    yield connection
            finally:
                self._pool.putconn(connection)
            self._breaker.note_answer()

    def _check(self, connection: Connection) -> None:
        try:
            with cut_off_when_silent(connection):
                ConnectionPool.check_connection(connection)
        except SilentError:
            self._silent_check.set()
            raise

    def _connection(self) -> Connection:
        self._silent_check.clear()
        try:
            return self._pool.getconn()
        except PoolTimeout as error:
            if self._silent_check.is_set():
                raise SilentError(_NO_ANSWER) from error
            # The pool does not say why it failed; a direct connection does. If that succeeds,
            # PostgreSQL came back after the pool's attempt, and the pool tries once more.
            ping(self._dsn)
            return self._pool.getconn()


@contextmanager
def translated_errors(breaker: Breaker | None = None) -> Iterator[None]:
    """Convert psycopg's errors to ours; raises at once while ``breaker`` is open."""
    if breaker is not None and (refusal := breaker.refusal()):
        raise StoreUnavailableError(refusal)
    try:
        yield
    except (
        psycopg.errors.InsufficientPrivilege,
        psycopg.errors.UndefinedTable,
        psycopg.errors.UndefinedColumn,
    ) as error:
        hint = "run `hopsctl migrate` as the schema's owner"
        raise StoreError(f"PostgreSQL: {_first_line(error)}; {hint}") from error
    except psycopg.errors.ReadOnlySqlTransaction as error:
        raise StoreUnavailableError(f"PostgreSQL is read-only: {_first_line(error)}") from error
    except (
        psycopg.OperationalError,
        psycopg.InterfaceError,
        PoolTimeout,
        PoolClosed,
    ) as error:
        if breaker is not None and isinstance(
            error, (SilentError, psycopg.errors.ConnectionTimeout)
        ):
            breaker.note_silence(_first_line(error))
        raise StoreUnavailableError(f"PostgreSQL does not answer: {_first_line(error)}") from error
    except psycopg.Error as error:
        raise StoreError(f"PostgreSQL: {_first_line(error)}") from error


def insert(
    connection: Connection,
    table: str,
    rows: Iterable[Mapping[str, Any]],
    *,
    on_conflict: str = "",
) -> None:
    """Insert rows with the same columns in one statement, however many there are."""
    rows = list(rows)
    if not rows:
        return
    columns = sql.SQL(", ").join(map(sql.Identifier, rows[0]))
    statement = sql.SQL(
        "INSERT INTO {table} ({columns})"
        " SELECT {columns} FROM json_populate_recordset(NULL::{table}, %s) {conflict}"
    ).format(
        table=sql.Identifier(table),
        columns=columns,
        conflict=sql.SQL(on_conflict),
    )
    connection.execute(statement, [json.dumps(rows, allow_nan=False)])


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0] or type(error).__name__

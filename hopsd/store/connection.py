"""Connections to PostgreSQL: one pool, short transactions, one kind of error."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from hopsd.errors import ConfigError, StoreError, StoreUnavailableError

SCHEMA = "hops"
Connection = psycopg.Connection[tuple[Any, ...]]

# A lost network is noticed within half a minute; a hanging query is cancelled after one minute.
_DEFAULTS = {
    "application_name": "hopsd",
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}
# The locks of a process stopped in mid-transaction must not keep another from leading.
_SERVER_OPTIONS = (
    f"-c search_path={SCHEMA} -c statement_timeout=60s"
    " -c idle_in_transaction_session_timeout=30s -c timezone=UTC"
)


def conninfo(dsn: str, **overrides: str) -> str:
    """``dsn`` completed with our defaults and ``overrides``.

    Raises:
        ConfigError: it is not a libpq connection string.
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
    """The database that ``dsn`` means for ``user`` on this machine; None: it names a host.

    Raises:
        ConfigError: it is not a libpq connection string.
    """
    parameters = conninfo_to_dict(conninfo(dsn))
    host = str(parameters.get("host") or parameters.get("hostaddr") or "")
    if host and not host.startswith("/"):
        return None
    return str(parameters.get("dbname") or parameters.get("user") or user)


# Each failure that matters is raised as a StoreUnavailableError.
logging.getLogger("psycopg.pool").setLevel(logging.ERROR)


class Database:
    """A pool that recovers by itself when PostgreSQL is back."""

    def __init__(self, dsn: str, wait_seconds: float) -> None:
        self._conninfo = conninfo(dsn)
        # Reconnecting gives up soon, so that the next request starts a fresh attempt instead
        # of waiting behind one that has backed off for minutes.
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            self._conninfo,
            min_size=1,
            max_size=4,
            timeout=wait_seconds,
            reconnect_timeout=1.0,
            check=ConnectionPool.check_connection,
            open=False,
            name="hops",
        )
        self._pool.open()

    def close(self) -> None:
        self._pool.close()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One transaction: committed at the end, rolled back by an exception.

        Raises:
            StoreUnavailableError: PostgreSQL does not answer.
            StoreError: it refused a statement.
        """
        with translated_errors():
            connection = self._connection()
            try:
                with connection:
                    yield connection
            finally:
                self._pool.putconn(connection)

    def _connection(self) -> Connection:
        try:
            return self._pool.getconn()
        except PoolTimeout:
            # The pool does not say why; a direct connection does. If that succeeds,
            # PostgreSQL came back after the pool's attempt: the next request starts another.
            psycopg.connect(self._conninfo).close()
            return self._pool.getconn()


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raise psycopg's errors as ours."""
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
        raise StoreUnavailableError(f"PostgreSQL takes no writes: {_first_line(error)}") from error
    except (
        psycopg.OperationalError,
        psycopg.InterfaceError,
        PoolTimeout,
        PoolClosed,
    ) as error:
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

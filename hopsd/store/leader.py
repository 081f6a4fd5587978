"""Leader election: one active hopsd per database, by a session-level advisory lock.

The lock says who leads, the epoch who led last. A process may be stopped between verifying that it
leads and acting on it: once another hopsd has led, PostgreSQL itself refuses its writes, by the
epoch.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress

import psycopg
from psycopg import sql

from hopsd.errors import NotLeaderError
from hopsd.store.connection import (
    Connection,
    SilentError,
    answers,
    conninfo,
    cut_off_when_silent,
    postgres_breaker,
    translated_errors,
)

LEASE_SECONDS = 30.0
"""How long a stopped or disconnected process keeps the lock."""
_BEATS = 5

_LOCK = 0x686F7073_00000002
_HOLDER = """
SELECT a.application_name, a.backend_start::timestamp(0)
FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (l.classid::bigint << 32) + l.objid::bigint = %s
"""


class Leader:
    """Leadership lasts as long as its connection: PostgreSQL frees the lock of a lost connection,
    and closes one that was idle for ``lease_seconds``.
    """

    def __init__(self, dsn: str, *, lease_seconds: float = LEASE_SECONDS) -> None:
        name = f"hopsd {socket.gethostname()} {os.getpid()}"
        self._dsn = dsn
        self._conninfo = conninfo(dsn, application_name=name[:63])
        self._lease_seconds = lease_seconds
        self.breaker = postgres_breaker()
        """The breaker of the PostgreSQL that has the lock; the store shares it."""
        self._connection: Connection | None = None
        self._epoch: int | None = None
        self._term: object | None = None
        self._beating = threading.Event()

    def acquire(self) -> None:
        """Become the leader, or verify that this process still is. Cheap: one round trip.

        Raises:
            NotLeaderError: another hopsd leads, or may have led meanwhile because the connection
                that held the lock was lost.
            StoreUnavailableError: PostgreSQL does not answer.
        """
        if self._epoch is not None:
            self.assure()
            self.breaker.note_answer()
            return
        with translated_errors(self.breaker):
            if self._connection is None or not self._alive():
                self._connection = psycopg.connect(self._conninfo, autocommit=True)
            self._take_lock(self._connection)
        self.breaker.note_answer()

    def _take_lock(self, connection: Connection) -> None:
        # This waits for an earlier leader's transactions: a server that answers others is not down.
        with cut_off_when_silent(connection, lambda: answers(self._dsn)):
            row = connection.execute("SELECT pg_try_advisory_lock(%s)", [_LOCK]).fetchone()
            if row is None or not row[0]:
                raise NotLeaderError(f"{self._holder(connection)} leads")
            try:
                self._epoch = self._take(connection)
            except psycopg.Error:
                self.close()  # closing the connection frees the lock
                raise
        self._term = object()
        self._beat(connection)

    @property
    def term(self) -> object | None:
        """A unique token of this leadership; None while this process does not lead, as far as it
        knows.

        The epoch is not unique: a database restored from a backup repeats epochs.
        """
        return self._term

    def close(self) -> None:
        """Give up leadership."""
        self._epoch = self._term = None
        self._beating.set()
        if self._connection is not None:
            # Free the lock now, not when PostgreSQL gets round to ending the session.
            with suppress(psycopg.Error):
                self._connection.execute("SELECT pg_advisory_unlock_all()")
            self._connection.close()
            self._connection = None

    def assure(self) -> None:
        """Verify that this process leads.

        Raises:
            NotLeaderError: it does not lead, or no longer does.
        """
        if self._epoch is None:
            raise NotLeaderError("this hopsd does not lead")
        if not self._alive():
            self.close()
            cause = f": {self.breaker.problem}" if self.breaker.refusal() else ""
            raise NotLeaderError(f"the connection that held the leader's lock was lost{cause}")

    def fence(self, connection: Connection) -> None:
        """Allow the transaction of ``connection`` to commit only if no other hopsd has led since.

        A new leader waits for transactions that were fenced earlier.

        Raises:
            NotLeaderError: this process does not lead, or another has led.
        """
        if self._epoch is None:
            raise NotLeaderError("this hopsd does not lead")
        lease = connection.execute(
            "SELECT FROM leadership WHERE epoch = %s FOR SHARE", [self._epoch]
        )
        if lease.rowcount != 1:
            raise NotLeaderError("another hopsd has led since")

    def _take(self, connection: Connection) -> int:
        milliseconds = round(self._lease_seconds * 1000)
        connection.execute(
            sql.SQL("SET idle_session_timeout = {}").format(sql.Literal(milliseconds))
        )
        row = connection.execute(
            "UPDATE leadership SET epoch = epoch + 1 RETURNING epoch"
        ).fetchone()
        if row is None:
            raise psycopg.DataError("table leadership has no row")
        return int(row[0])

    def _beat(self, connection: Connection) -> None:
        """Send a query on ``connection`` before each lease ends, until it is closed."""
        stop_event = self._beating = threading.Event()

        def beat() -> None:
            while not stop_event.wait(self._lease_seconds / _BEATS):
                with suppress(psycopg.Error):  # assure, called before each act, finds the loss
                    connection.execute("SELECT 1")

        threading.Thread(target=beat, name="leader", daemon=True).start()

    def _alive(self) -> bool:
        if self._connection is None:
            return False
        try:
            with cut_off_when_silent(self._connection):
                self._connection.execute("SELECT 1")
        except psycopg.Error as error:
            if isinstance(error, SilentError):
                self.breaker.note_silence(str(error))
            self._connection.close()
            return False
        return True

    def _holder(self, connection: Connection) -> str:
        row = connection.execute(_HOLDER, [_LOCK]).fetchone()
        return f"{row[0]} (since {row[1]} UTC)" if row else "another hopsd"

"""One active hopsd per database: a session's advisory lock on a connection of its own."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

import psycopg

from hopsd.errors import NotLeaderError
from hopsd.store.connection import Connection, conninfo, told

_LOCK = 0x686F7073_00000002
_HOLDER = """
SELECT a.application_name, a.backend_start::timestamp(0)
FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (l.classid::bigint << 32) + l.objid::bigint = %s
"""


class Leader:
    """Leadership lasts as long as its connection: PostgreSQL frees the lock of a lost one."""

    def __init__(self, dsn: str) -> None:
        name = f"hopsd {socket.gethostname()} {os.getpid()}"
        self._conninfo = conninfo(dsn, application_name=name[:63])
        self._connection: Connection | None = None
        self._leads = False

    def acquire(self) -> None:
        """Become the leader, or make sure of still being it. Cheap: one round trip.

        Raises:
            NotLeaderError: another hopsd leads, or the connection that held the lock was
                lost since: somebody else may have led meanwhile.
            StoreUnavailableError: PostgreSQL does not answer.
        """
        if self._leads:
            self.assure()
            return
        with told():
            if self._connection is None or not self._alive():
                self._connection = psycopg.connect(self._conninfo, autocommit=True)
            row = self._connection.execute("SELECT pg_try_advisory_lock(%s)", [_LOCK]).fetchone()
            if row is None or not row[0]:
                raise NotLeaderError(f"{self._holder()} leads")
            self._leads = True

    def close(self) -> None:
        """Give leadership up."""
        self._leads = False
        if self._connection is not None:
            # At the return, not when PostgreSQL gets round to ending the session.
            with suppress(psycopg.Error):
                self._connection.execute("SELECT pg_advisory_unlock_all()")
            self._connection.close()
            self._connection = None

    def assure(self) -> None:
        """Nothing, as long as this one leads.

        Raises:
            NotLeaderError: it does not, or no longer.
        """
        if not self._leads:
            raise NotLeaderError("this hopsd does not lead")
        if not self._alive():
            self.close()
            raise NotLeaderError("the connection that held the leader's lock was lost")

    def _alive(self) -> bool:
        if self._connection is None:
            return False
        try:
            self._connection.execute("SELECT 1")
        except psycopg.Error:
            self._connection.close()
            return False
        return True

    def _holder(self) -> str:
        assert self._connection is not None  # noqa: S101 - set by the only caller
        row = self._connection.execute(_HOLDER, [_LOCK]).fetchone()
        return f"{row[0]} (since {row[1]} UTC)" if row else "another hopsd"

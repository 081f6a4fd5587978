"""The schema's migrations: numbered SQL, forward and back, through yoyo."""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import urlencode

import psycopg
from psycopg import sql
from yoyo import get_backend, read_migrations

from hopsd.errors import InputError, StoreError
from hopsd.store.connection import SCHEMA, Connection, conninfo, translated_errors

OLDEST_RELEASE = 15
# An arbitrary lock number, which keeps two migrations of one database from running at once.
_LOCK = 0x686F7073_00000001


def folder() -> Path:
    """Return the folder of the SQL files: beside the package in a checkout, else as installed.

    Raises:
        StoreError: the folder is in neither place.
    """
    checkout = Path(__file__).resolve().parents[2] / "migrations"
    installed_folder = Path(sys.prefix) / "share" / "hops" / "migrations"
    for place in (checkout, installed_folder):
        if any(place.glob("[0-9]*.sql")):
            return place
    raise StoreError(f"no migrations in {checkout} or {installed_folder}; reinstall hops")


def migrate(dsn: str, *, undo_count: int = 0) -> tuple[str, ...]:
    """Bring the schema to the newest version, or undo its last ``undo_count`` migrations.

    Returns the names of the migrations applied or rolled back, in that order. Each migration is
    one transaction.

    Raises:
        StoreUnavailableError: PostgreSQL does not answer.
        StoreError: PostgreSQL refused, and earlier migrations stay; or the schema is from a newer
            release, and nothing was changed.
    """
    with translated_errors(), psycopg.connect(conninfo(dsn), autocommit=True) as connection:
        _refuse_old(connection)
        connection.execute("SELECT pg_advisory_lock(%s)", [_LOCK])
        _create_schema(connection)
        _pending(connection)
        return _run(dsn, undo_count)


def back_to(dsn: str, name: str) -> tuple[str, ...]:
    """Undo every migration after ``name``, newest first, for a release that has no later one.

    Returns the names of the undone ones; empty if the schema is not newer.

    Raises:
        InputError: this release has no such migration.
        StoreUnavailableError, StoreError: as for :func:`migrate`.
    """
    names = _names()
    if name not in names:
        raise InputError(f"no migration {name!r}; accepted: {', '.join(names)}")
    applied_migrations = [migration for migration in names if migration not in pending(dsn)]
    count = sum(migration > name for migration in applied_migrations)
    return migrate(dsn, undo_count=count) if count else ()


def pending(dsn: str) -> tuple[str, ...]:
    """Return the names of migrations not applied yet; changes nothing.

    Raises:
        StoreUnavailableError: PostgreSQL does not answer.
        StoreError: PostgreSQL refused, or the schema is from a newer release.
    """
    with translated_errors(), psycopg.connect(conninfo(dsn), autocommit=True) as connection:
        return _pending(connection)


def _pending(connection: Connection) -> tuple[str, ...]:
    names = _names()
    has_table = connection.execute("SELECT to_regclass('_yoyo_migration') IS NOT NULL").fetchone()
    if has_table != (True,):
        return tuple(names)
    rows = connection.execute("SELECT migration_id FROM _yoyo_migration ORDER BY 1").fetchall()
    applied_migrations = [row[0] for row in rows]
    if newer := [name for name in applied_migrations if name not in names]:
        raise StoreError(
            f"the database is from a newer hops: it has {', '.join(newer)}, which this release does"
            " not know; install that release, or go back with its `hopsctl migrate --back N`"
        )
    return tuple(name for name in names if name not in applied_migrations)


def _names() -> list[str]:
    return [path.stem for path in sorted(folder().glob("*.sql")) if ".rollback" not in path.name]


def _refuse_old(connection: Connection) -> None:
    release = connection.info.server_version // 10000
    if release < OLDEST_RELEASE:
        raise StoreError(f"PostgreSQL {release} is too old; accepted: {OLDEST_RELEASE} or newer")


def _create_schema(connection: Connection) -> None:
    # IF NOT EXISTS would require the right to create schemas even if ours exists.
    schema = connection.execute("SELECT FROM pg_namespace WHERE nspname = %s", [SCHEMA])
    if schema.fetchone() is None:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(SCHEMA)))


def _run(dsn: str, steps_back: int) -> tuple[str, ...]:
    # yoyo passes its URI's arguments to psycopg.connect, so all of ours go in as conninfo.
    uri = "postgresql+psycopg://?" + urlencode({"conninfo": conninfo(dsn)})
    backend = get_backend(uri)
    try:
        # We hold the lock above, so a row in yoyo's own lock table was left by a killed run.
        backend.break_lock()
        migrations = read_migrations(str(folder()))
        with backend.lock():
            if steps_back:
                selected_migrations = backend.to_rollback(migrations)[:steps_back]
                backend.rollback_migrations(selected_migrations)
            else:
                selected_migrations = backend.to_apply(migrations)
                backend.apply_migrations(selected_migrations)
        return tuple(migration.id for migration in selected_migrations)
    finally:
        backend.connection.close()

"""Migrations forward, back and forward again, on each available release of PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner, Result
from fixtures_postgres import Databases
from values import job, plan_record

from hopsd.ctl.admin.database import migrate as migrate_command
from hopsd.errors import InputError, StoreError
from hopsd.store.migrate import back_to, folder, migrate, pending
from hopsd.store.postgres import PostgresStore

pytestmark = pytest.mark.live

NAMES = tuple(sorted(path.stem for path in folder().glob("*.sql") if "rollback" not in path.stem))


@pytest.fixture
def dsn(databases: Databases) -> str:
    return databases.new(with_tables=False)


def objects(dsn: str) -> set[str]:
    """Return all tables, indices and columns of the schema, except for yoyo's own tables."""
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'hops'::regnamespace"
            " UNION SELECT table_name || '.' || column_name FROM information_schema.columns"
            " WHERE table_schema = 'hops'"
        )
        return {name for (name,) in rows if "yoyo" not in name}


def test_each_migration_can_be_rolled_back() -> None:
    for name in NAMES:
        assert (folder() / f"{name}.rollback.sql").read_text().strip()


def test_migrations_are_applied_once(dsn: str) -> None:
    assert pending(dsn) == NAMES
    assert migrate(dsn) == NAMES
    assert pending(dsn) == ()
    assert migrate(dsn) == ()


@pytest.mark.long
def test_each_rollback_restores_the_schema_of_the_previous_release(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = folder()
    monkeypatch.setattr("hopsd.store.migrate.folder", lambda: tmp_path)
    schemas: list[set[str]] = [set()]
    for name in NAMES:
        for file in (f"{name}.sql", f"{name}.rollback.sql"):
            (tmp_path / file).symlink_to(sources / file)
        assert migrate(dsn) == (name,)
        schemas.append(objects(dsn))
        assert schemas[-1] > schemas[-2]
    for name, earlier in zip(reversed(NAMES), reversed(schemas[:-1]), strict=True):
        assert migrate(dsn, undo_count=1) == (name,)
        assert objects(dsn) == earlier
    assert migrate(dsn) == NAMES
    assert objects(dsn) == schemas[-1]


def test_an_older_release_needs_a_rollback_to_a_named_migration(dsn: str) -> None:
    migrate(dsn)
    assert back_to(dsn, NAMES[-3]) == tuple(reversed(NAMES[-2:]))
    assert pending(dsn) == NAMES[-2:]
    assert back_to(dsn, NAMES[-3]) == ()
    with pytest.raises(InputError, match=NAMES[-1]):
        back_to(dsn, "9999.unknown")


def test_rolling_back_everything_leaves_nothing(dsn: str) -> None:
    migrate(dsn)
    migrate(dsn, undo_count=len(NAMES))
    assert objects(dsn) == set()
    assert migrate(dsn, undo_count=1) == ()


def test_rolling_back_and_forward_keeps_older_tables(dsn: str) -> None:
    migrate(dsn)
    with PostgresStore(dsn) as store:
        store.save_jobs([job("1")])
        plan = store.begin_plan(plan_record())
        store.add_event("drift", "lost with its table")
    newer = len(NAMES) - NAMES.index("0002.plans") - 1
    migrate(dsn, undo_count=newer)
    migrate(dsn)
    with PostgresStore(dsn) as store:
        assert set(store.jobs()) == {"1"}
        assert store.unfinished_plan() == (plan, plan_record())
        assert store.events() == ()


def test_a_lock_left_by_a_killed_migration_does_not_stop_the_next(dsn: str) -> None:
    migrate(dsn, undo_count=0)
    with psycopg.connect(dsn) as connection:
        connection.execute("INSERT INTO hops.yoyo_lock (locked, ctime, pid) VALUES (1, now(), 1)")
    assert migrate(dsn, undo_count=1) == NAMES[-1:]


def test_a_role_that_owns_only_the_schema_can_migrate_and_work(databases: Databases) -> None:
    """The role is no superuser and not the owner: docs/configuration.md grants no more."""
    dsn = databases.new(with_tables=False)
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS hopsd")
        admin.execute("CREATE ROLE hopsd LOGIN")
        admin.execute("CREATE SCHEMA hops AUTHORIZATION hopsd")
    owner_dsn = dsn.replace("user=hops", "user=hopsd")
    assert migrate(owner_dsn) == NAMES
    with PostgresStore(owner_dsn) as store:
        store.save_jobs([job("1")])
        store.begin_plan(plan_record())
        assert store.prune(0.0, 1.0)["jobs"] == 0
    with (
        psycopg.connect(owner_dsn) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("CREATE TABLE public.other ()")


def test_a_role_without_rights_is_told_what_to_do(databases: Databases) -> None:
    dsn = databases.new(with_tables=False)
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS stranger")
        admin.execute("CREATE ROLE stranger LOGIN")
    with pytest.raises(StoreError, match="permission denied"):
        migrate(dsn.replace("user=hops", "user=stranger"))


def test_a_database_of_a_newer_release_is_left_alone(dsn: str) -> None:
    migrate(dsn)
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "INSERT INTO hops._yoyo_migration (migration_hash, migration_id)"
            " VALUES ('x', '0099.future')"
        )
    for attempt in (pending, migrate):
        with pytest.raises(StoreError, match=r"newer hops: it has 0099\.future"):
            attempt(dsn)


def test_an_old_release_of_postgresql_is_refused(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hopsd.store.migrate.OLDEST_RELEASE", 99)
    with pytest.raises(StoreError, match="too old; accepted: 99 or newer"):
        migrate(dsn)
    assert pending(dsn) == NAMES


def run(*args: str) -> Result:
    return CliRunner().invoke(migrate_command, args)


def test_the_command_reports_what_it_does(dsn: str, tmp_path: Path) -> None:
    path = tmp_path / "hopsd.toml"
    path.write_text(f'[database]\ndsn = "{dsn}"\n')
    options = ["--config", str(path)]
    missing = run(*options, "--check")
    assert missing.exit_code == 1
    assert missing.output.splitlines() == [f"to apply: {name}" for name in NAMES]
    result = run(*options)
    assert (result.exit_code, result.output) == (0, "".join(f"applied: {name}\n" for name in NAMES))
    assert (run("--dsn", dsn, "--check").exit_code, run("--dsn", dsn).output) == (0, "up to date\n")
    assert run("--dsn", dsn, "--back", "1").output == f"rolled back: {NAMES[-1]}\n"
    assert run("--dsn", dsn, "--back", "0").exit_code == 2


def test_setup_cfg_installs_the_sql(tmp_path: Path) -> None:
    assert "share/hops/migrations = migrations/*.sql" in (folder().parent / "setup.cfg").read_text()

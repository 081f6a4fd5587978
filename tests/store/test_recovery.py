"""If PostgreSQL is killed, stopped or restarted, the store loses no commit and carries on."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count

import psycopg
import pytest
from fixtures_postgres import server_folder
from psycopg import sql
from values import job, plan_record

from hopsd.errors import ConfigError, NotLeaderError, StoreError, StoreUnavailableError
from hopsd.model.ids import JobId
from hopsd.model.step import OutcomeStatus, Step, StepKind, StepOutcome
from hopsd.store import connection
from hopsd.store.connection import conninfo
from hopsd.store.embedded import EmbeddedPostgres
from hopsd.store.leader import LEASE_SECONDS, Leader
from hopsd.store.migrate import migrate
from hopsd.store.postgres import PostgresStore

pytestmark = pytest.mark.live

STEP = Step(JobId("1"), StepKind.HOLD)


@pytest.fixture(scope="module")
def module_server() -> Iterator[EmbeddedPostgres]:
    """A server for these tests alone, since they kill it."""
    with EmbeddedPostgres(parent=server_folder()) as server:
        migrate(server.create_database("migrated"))
        yield server


@pytest.fixture
def server(module_server: EmbeddedPostgres) -> EmbeddedPostgres:
    """The server of this module, running."""
    module_server.start()
    return module_server


_numbers = count()


@pytest.fixture
def dsn(server: EmbeddedPostgres) -> str:
    return server.create_database(f"hops{next(_numbers)}", template="migrated")


@pytest.fixture
def store(dsn: str) -> Iterator[PostgresStore]:
    with PostgresStore(dsn, wait_seconds=3.0) as store:
        yield store


def test_commits_survive_kill_9_of_postgresql(
    server: EmbeddedPostgres, store: PostgresStore
) -> None:
    store.save_jobs([job("1")])
    plan = store.begin_plan(plan_record())
    server.kill()
    server.start()
    assert set(store.jobs()) == {"1"}
    assert store.unfinished_plan() == (plan, plan_record())


def test_calls_report_an_unavailable_postgresql_and_recover(
    server: EmbeddedPostgres, store: PostgresStore
) -> None:
    store.save_jobs([job("1")])
    server.stop()
    with pytest.raises(StoreUnavailableError, match="does not answer"):
        store.jobs()
    with pytest.raises(StoreUnavailableError):
        store.save_jobs([job("2")])
    server.start()
    assert set(store.jobs()) == {"1"}
    store.save_jobs([job("2")])
    assert set(store.jobs()) == {"1", "2"}


@contextmanager
def suspend_processes(server: EmbeddedPostgres) -> Iterator[None]:
    """Stop all processes of ``server``: connections stay open, and nothing answers."""
    assert server.processes()
    try:
        for pid in server.processes():
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in server.processes():
            os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("is_leader", [False, True])
def test_a_hanging_postgresql_costs_one_short_time_out(
    server: EmbeddedPostgres, dsn: str, is_leader: bool
) -> None:
    with closing(Leader(dsn)) as leader, PostgresStore(dsn, leader=leader) as store:
        leader.acquire()
        store.save_jobs([job("1")])
        ask = leader.assure if is_leader else store.unfinished_plan
        with suspend_processes(server):
            start_time = time.monotonic()
            with pytest.raises((StoreUnavailableError, NotLeaderError)):
                ask()
            first = time.monotonic() - start_time
            assert first < 8.0
            for _ in range(50):
                with pytest.raises(StoreUnavailableError, match="PostgreSQL does not answer"):
                    leader.acquire() if is_leader else store.unfinished_plan()
            assert time.monotonic() - start_time < first + 1.0
        deadline = time.monotonic() + 60.0
        while True:
            try:
                leader.acquire()
                break
            except (StoreUnavailableError, NotLeaderError):
                assert time.monotonic() < deadline
                time.sleep(0.2)
        assert set(store.jobs()) == {"1"}
        store.save_jobs([job("2")])


def test_a_slow_statement_is_not_an_outage(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "SILENCE_SECONDS", 0.1)
    database = connection.Database(dsn, 4.0, connection.postgres_breaker())
    with closing(database), database.transaction() as transaction:
        transaction.execute("SELECT pg_sleep(0.5)")
        assert transaction.execute("SELECT 1").fetchone() == (1,)


def test_a_read_only_database_counts_as_away_and_blames_no_job(
    store: PostgresStore, dsn: str
) -> None:
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(
            sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(
                sql.Identifier(admin.info.dbname)
            )
        )
    with (
        PostgresStore(dsn) as read_only_store,
        pytest.raises(StoreUnavailableError, match="is read-only"),
    ):
        read_only_store.save_jobs([job("1")])
    assert not store.jobs()


def test_a_waiting_call_is_served_when_postgresql_returns(
    server: EmbeddedPostgres, dsn: str
) -> None:
    with PostgresStore(dsn, wait_seconds=8.0) as store:  # a busy machine starts it in some seconds
        store.save_jobs([job("1")])
        server.stop()
        restart = threading.Timer(2.0, server.start)  # by then, the pool has given up
        restart.start()
        assert set(store.jobs()) == {"1"}
        restart.join()


def test_a_restart_between_two_calls_goes_unnoticed(
    server: EmbeddedPostgres, store: PostgresStore
) -> None:
    for number in range(3):
        store.save_jobs([job(str(number))])
        server.restart()
    assert set(store.jobs()) == {"0", "1", "2"}


@pytest.mark.long
def test_a_restart_within_a_call_writes_all_or_nothing(
    server: EmbeddedPostgres, store: PostgresStore
) -> None:
    """Whenever the server is killed, saves that returned are complete and others left nothing."""
    saves: list[int] = []
    stop = threading.Event()

    def save() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            batch = [job(str(n), seen=float(number)) for n in range(300)]
            try:
                store.save_jobs(batch)
            except StoreUnavailableError:
                continue
            saves.append(number)

    writer = threading.Thread(target=save)
    writer.start()
    try:
        for kill in range(4):
            save_count = len(saves)
            while len(saves) == save_count:
                time.sleep(0.01)
            time.sleep(0.005 * kill)
            server.kill()
            server.start()
    finally:
        stop.set()
        writer.join()
    times = {record.seen for record in store.jobs().values()}
    assert len(saves) >= 4
    assert len(times) == 1
    assert times.pop() >= saves[-1]


def test_a_store_created_while_postgresql_is_away_works_later(
    server: EmbeddedPostgres, dsn: str
) -> None:
    server.stop()
    with PostgresStore(dsn, wait_seconds=3.0) as store:
        with pytest.raises(StoreUnavailableError):
            store.jobs()
        server.start()
        assert store.jobs() == {}


def test_only_one_process_leads(dsn: str) -> None:
    first, second = Leader(dsn), Leader(dsn)
    try:
        first.acquire()
        first.acquire()
        with pytest.raises(NotLeaderError, match=r"hopsd \S+ \d+ \(since"):
            second.acquire()
        first.close()
        second.acquire()
        with pytest.raises(NotLeaderError):
            first.acquire()
    finally:
        first.close()
        second.close()


def test_a_lost_connection_loses_the_lead(server: EmbeddedPostgres, dsn: str) -> None:
    first, second = Leader(dsn), Leader(dsn)
    try:
        first.acquire()
        server.restart()
        second.acquire()
        with pytest.raises(NotLeaderError, match="was lost"):
            first.acquire()
        with pytest.raises(NotLeaderError, match="leads"):
            first.acquire()
        second.close()
        first.acquire()
    finally:
        first.close()
        second.close()


def _end_session_of_leader(server: EmbeddedPostgres) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_locks WHERE locktype = 'advisory'"
        )


def test_a_leader_whose_session_is_ended_by_an_operator_notices(
    server: EmbeddedPostgres, dsn: str
) -> None:
    leader = Leader(dsn)
    try:
        leader.acquire()
        _end_session_of_leader(server)
        with pytest.raises(NotLeaderError):
            leader.acquire()
    finally:
        leader.close()


def test_nobody_leads_without_postgresql(server: EmbeddedPostgres, dsn: str) -> None:
    leader = Leader(dsn)
    server.stop()
    with pytest.raises(StoreUnavailableError):
        leader.acquire()
    server.start()
    leader.acquire()
    leader.close()


def test_a_plan_is_not_begun_after_the_lead_is_lost(server: EmbeddedPostgres, dsn: str) -> None:
    leader, second_leader = Leader(dsn), Leader(dsn)
    with PostgresStore(dsn, leader=leader) as store:
        with pytest.raises(NotLeaderError):
            store.begin_plan(plan_record())
        leader.acquire()
        store.begin_plan(plan_record(time=100.0))
        server.restart()
        second_leader.acquire()
        with pytest.raises(NotLeaderError):
            store.begin_plan(plan_record(time=130.0))
        unfinished_plan = store.unfinished_plan()
    assert unfinished_plan is not None
    assert unfinished_plan[1].made == 100.0
    second_leader.close()


def test_a_former_leader_writes_nothing(server: EmbeddedPostgres, dsn: str) -> None:
    """The old leader is suspended in the middle of a plan and resumed after another one has led."""
    leader, second_leader = Leader(dsn), Leader(dsn)
    with (
        PostgresStore(dsn, leader=leader) as stale_store,
        PostgresStore(dsn, leader=second_leader) as store,
        closing(leader),
        closing(second_leader),
    ):
        leader.acquire()
        plan = stale_store.begin_plan(plan_record())
        _end_session_of_leader(server)
        second_leader.acquire()
        success, failure = (
            StepOutcome(STEP, status) for status in (OutcomeStatus.DONE, OutcomeStatus.FAILED)
        )
        store.finish_plan(plan, [success], finished=120.0)
        for write in (
            lambda: stale_store.finish_plan(plan, [failure], finished=130.0),
            lambda: stale_store.save_jobs([job("1")]),
            lambda: stale_store.add_event("defect", "told too late"),
            lambda: stale_store.end_release_requests(()),
        ):
            with pytest.raises(NotLeaderError, match="has led since"):
                write()
        assert store.outcomes(plan) == (success,)
        assert not store.jobs()


def test_the_lock_of_a_suspended_process_expires(dsn: str) -> None:
    frozen_leader, second_leader = Leader(dsn, lease_seconds=0.5), Leader(dsn)
    with closing(frozen_leader), closing(second_leader):
        frozen_leader.acquire()
        time.sleep(1.0)
        with pytest.raises(NotLeaderError):
            second_leader.acquire()  # the lock is still renewed
        frozen_leader._beating.set()  # as after SIGSTOP
        deadline = time.monotonic() + 60.0
        while True:
            try:
                second_leader.acquire()
                break
            except NotLeaderError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        with pytest.raises(NotLeaderError, match="was lost"):
            frozen_leader.assure()


def test_locks_of_a_process_suspended_in_a_transaction_end_with_the_lead(
    dsn: str,
) -> None:
    with psycopg.connect(conninfo(dsn)) as connection:
        row = connection.execute("SHOW idle_in_transaction_session_timeout").fetchone()
    assert row == (f"{LEASE_SECONDS:g}s",)


def test_a_hopsd_that_does_not_lead_can_store_release_requests(dsn: str) -> None:
    with PostgresStore(dsn, leader=Leader(dsn)) as store:
        store.add_release_request([JobId("7")], uid=1000, time=5.0)
        assert [(w.jobs, w.uid) for w in store.release_requests()] == [((JobId("7"),), 1000)]


def test_a_database_without_the_schema_is_reported_with_advice(server: EmbeddedPostgres) -> None:
    with (
        PostgresStore(server.create_database("empty")) as store,
        pytest.raises(StoreError, match="hopsctl migrate"),
    ):
        store.jobs()


def test_an_invalid_dsn_is_refused() -> None:
    with pytest.raises(ConfigError, match="not a libpq connection string"):
        PostgresStore("no such thing")


def test_text_that_postgresql_cannot_hold_is_replaced(store: PostgresStore) -> None:
    store.save_jobs([job("1", name="a\0b\udcff", comment="ü")])
    record = store.jobs()[JobId("1")]
    assert (record.name, record.comment) == ("a\ufffdb?", "ü")

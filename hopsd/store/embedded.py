"""A private PostgreSQL for the demo and the tests: no service, no port, no new account."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import psycopg
from psycopg import sql

from hopsd.errors import StoreError
from hopsd.store.account import identity, reachable, server_account
from hopsd.store.binaries import find_binaries

_START_SECONDS = 60.0
_STOP_SECONDS = 30.0
_OWNER = "hops"
_SETTINGS = {
    "listen_addresses": "",
    "shared_buffers": "32MB",
    "max_connections": "50",
    "logging_collector": "off",
    "jit": "off",
    # Without fsync every commit still reaches the operating system: it survives kill -9 of
    # PostgreSQL, but not a crash of the machine.
    "fsync": "off",
    "full_page_writes": "off",
}
# Waits for the end of its input, which comes when we die for whatever reason, then stops the server
# and removes its folder, $1. The pid is trusted only if that process works in the folder.
_GUARD = """
read -r _
pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null)
if [ -n "$pid" ] && [ "$(readlink "/proc/$pid/cwd")" = "$1/data" ]; then
    kill -QUIT "$pid"
    while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
fi
rm -rf "$1"
"""


class EmbeddedPostgres:
    """A private server that only its owner (and root) reaches, through a Unix socket.

    Its files are in a new folder below ``parent``, by default the system's temporary folder. The
    folder is removed by `close`, or when this process dies without calling it. Root's server runs
    as an existing account, ``postgres`` or ``nobody``.

    Raises:
        StoreError: there are no binaries, or the server does not start; nothing is left behind.
    """

    def __init__(self, *, binaries: Path | None = None, parent: Path | None = None) -> None:
        self._account = server_account()
        self._process: subprocess.Popen[bytes] | None = None
        self._binaries = binaries or find_binaries()
        self._home = self._new_home(parent)
        self._guard = _start_guard(self._home)
        try:
            if not reachable(self._binaries, self._account):
                self._copy_binaries()
            self._init()
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def version(self) -> str:
        """The server's release, such as ``15.18``."""
        with psycopg.connect(self.dsn()) as connection:
            number = connection.info.server_version
        return f"{number // 10000}.{number % 10000}"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def dsn(self, database: str = "postgres") -> str:
        """The connection string of one of the server's databases."""
        return f"host={self._home} user={_OWNER} dbname={database}"

    def create_database(self, name: str, template: str | None = None) -> str:
        """Create a database, a copy of ``template`` if given; returns its connection string."""
        statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
        if template is not None:
            statement += sql.SQL(" TEMPLATE {}").format(sql.Identifier(template))
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(statement)
        return self.dsn(name)

    def start(self) -> None:
        """Start the server if it is stopped, and wait until it answers."""
        if self.running:
            return
        settings = [part for key, value in _SETTINGS.items() for part in ("-c", f"{key}={value}")]
        with (self._home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._program("postgres"), "-D", self._data, "-k", self._home, *settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._home,
                env=_environment(),
                # Ctrl-C at the terminal is meant for our parent, which stops the server in order.
                start_new_session=True,
                **identity(self._account),
            )
        self._wait_until_up()

    def stop(self) -> None:
        """Shut down fast: end connections and write everything. Does nothing if stopped."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Kill the server with ``kill -9``: the next start recovers what was committed."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop the server at once, since its files are not read again, and remove them."""
        self._end(signal.SIGQUIT)
        shutil.rmtree(self._home, ignore_errors=True)
        self._guard.kill()
        self._guard.communicate()

    def __enter__(self) -> EmbeddedPostgres:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def _data(self) -> Path:
        return self._home / "data"

    def _program(self, name: str) -> Path:
        return self._binaries / name

    def _new_home(self, parent: Path | None) -> Path:
        home = Path(tempfile.mkdtemp(prefix="hops-pg-", dir=parent)).resolve()
        if self._account is not None:
            os.chown(home, self._account.pw_uid, self._account.pw_gid)
        return home

    def _copy_binaries(self) -> None:
        """Give the account its own copy of the binaries if it cannot enter their folder."""
        release = self._binaries.parent
        package = release.parent
        copy = self._home / "install" / package.name / release.name
        shutil.copytree(release, copy, symlinks=True)
        # A wheel keeps its binaries' libraries next to the package.
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, self._home / "install" / libraries.name)
        self._binaries = copy / self._binaries.name

    def _init(self) -> None:
        result = subprocess.run(
            [
                self._program("initdb"),
                "--no-sync",
                "--no-instructions",
                f"--username={_OWNER}",
                "--auth-local=trust",
                "--auth-host=reject",
                "--encoding=UTF8",
                "--no-locale",
                "-D",
                self._data,
            ],
            cwd=self._home,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_START_SECONDS,
            **identity(self._account),
        )
        if result.returncode != 0:
            raise StoreError(f"initdb of {self._binaries} failed: {result.stderr.strip()[-500:]}")

    def _wait_until_up(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while self.running:
            try:
                psycopg.connect(self.dsn(), connect_timeout=2).close()
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.02)
            else:
                return
        log = (self._home / "log").read_text(errors="replace")[-800:]
        raise StoreError(f"PostgreSQL of {self._binaries} did not start: {log.strip()}")

    def _end(self, signal_number: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal_number)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        # After a kill the server's children end by themselves; until then no new one can start.
        deadline = time.monotonic() + _STOP_SECONDS
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.02)
        self._process = None

    def processes(self) -> list[int]:
        """The server's processes, which work in its folder, in a session of their own."""
        pids = []
        for link in Path("/proc").glob("[0-9]*/cwd"):
            with suppress(OSError):
                if link.readlink() == self._data:
                    pids.append(int(link.parent.name))
        return pids


def _start_guard(home: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", _GUARD, "guard", home],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )


def _environment() -> dict[str, str]:
    """Our environment without variables that would redirect the server or its client programs."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "LC_", "LANG"))}
    return variables | {"LC_ALL": "C", "TZ": "UTC"}

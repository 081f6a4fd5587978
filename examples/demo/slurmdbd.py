"""A private Slurm cluster with slurmdbd and its own MariaDB."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from examples.demo.cluster import ClusterError, NodeSpec, PrivateCluster, free_ports
from examples.demo.slurm_conf import find_program
from hopsd.errors import SlurmError

PACKAGES = ("slurmdbd", "slurm-wlm-mysql-plugin", "mariadb-server")
PROGRAMS = ("slurmdbd", "mariadbd", "mariadb-install-db", "mariadb")
MARIADB_ACCOUNT = "nobody"
ENFORCED_LIMITS = "associations,limits,qos,safe"
READY_SECONDS = 90.0


def missing_slurmdbd() -> list[str]:
    """Names of missing programs; if there are none, root can run a :class:`SlurmdbdCluster`."""
    return [name for name in PROGRAMS if find_program(name) is None]


class SlurmdbdCluster(PrivateCluster):
    """A private cluster whose slurmctld records jobs, accounts and limits in slurmdbd.

    A subclass overrides :meth:`prepare` to write files before slurmctld starts, and
    :meth:`add_accounts` to create accounts and users.
    """

    def __init__(
        self, directory: Path, nodes: Sequence[NodeSpec], extra_conf: Sequence[str] = ()
    ) -> None:
        self._mariadb: subprocess.Popen[bytes] | None = None
        self._port, self._mariadb_port = free_ports(2)
        conf = (
            "AccountingStorageType=accounting_storage/slurmdbd",
            "AccountingStorageHost=localhost",
            f"AccountingStoragePort={self._port}",
            f"AccountingStoragePass={directory}/munge.sock",
            "AccountingStorageTRES=gres/gpu",
            f"AccountingStorageEnforce={ENFORCED_LIMITS}",
            "PriorityType=priority/multifactor",
            "PriorityWeightFairshare=1000",
            "PriorityWeightQOS=1000",
            *extra_conf,
        )
        super().__init__(directory, nodes=nodes, extra_conf=conf)

    def start_slurmctld(self, *, clean: bool = False) -> None:
        """Start slurmdbd first: slurmctld reads users from it and registers GRES with it."""
        if self._mariadb is None:
            self.prepare()
            self._start_mariadb()
            self._configure_slurmdbd()
            self.start_slurmdbd()
            self.sacctmgr("add", "cluster", "hops")
        super().start_slurmctld(clean=clean)
        if clean:
            # GPUs can be limited only once slurmctld has registered them with slurmdbd.
            _wait_until(lambda: "gpu" in self.run("sacctmgr", "--noheader", "show", "tres"))
            self.add_accounts()

    def prepare(self) -> None:
        """Hook: write files before the first start of slurmctld."""

    def add_accounts(self) -> None:
        """Hook: fill slurmdbd with :meth:`sacctmgr`."""

    def start_slurmdbd(self) -> None:
        """Start slurmdbd and wait until it answers."""
        self._launch("slurmdbd")
        _wait_until(lambda: self._answers("sacctmgr", "--noheader", "show", "cluster"))

    def stop_slurmdbd(self, signal_number: signal.Signals = signal.SIGTERM) -> None:
        self._stop("slurmdbd", signal_number)

    def sacctmgr(self, *words: str) -> str:
        return self.run("sacctmgr", "--immediate", *words)

    def stop(self) -> None:
        super().stop()
        self.stop_slurmdbd()
        if self._mariadb is not None:
            self._mariadb.kill()  # its data is temporary
            self._mariadb.wait()

    def _start_mariadb(self) -> None:
        data, temporary = self.directory / "mariadb", self.directory / "mariadb-tmp"
        # A starting server deletes all temporary tables in its folder, including those of others:
        # of 16 installations, 8 at a time, 4 failed with a shared folder, and none with separate
        # ones.
        options = ["--no-defaults", f"--datadir={data}", f"--tmpdir={temporary}"]
        folders = (data, temporary)
        for folder in folders:
            folder.mkdir()
        if os.geteuid() == 0:
            options.append(f"--user={MARIADB_ACCOUNT}")
            for folder in folders:
                shutil.chown(folder, MARIADB_ACCOUNT)
        _run("mariadb-install-db", *options, "--auth-root-authentication-method=normal")
        program = find_program("mariadbd")
        if program is None:
            raise ClusterError("no mariadbd on this machine")
        with (self.directory / "log" / "mariadb.log").open("ab") as log:
            self._mariadb = subprocess.Popen(
                [
                    program,
                    *options,
                    f"--socket={data}/socket",
                    f"--pid-file={data}/pid",
                    "--bind-address=127.0.0.1",
                    f"--port={self._mariadb_port}",
                    "--skip-name-resolve",
                    "--innodb-flush-log-at-trx-commit=0",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        rights = (
            "create user slurm@'127.0.0.1' identified by 'private';"
            " grant all on slurm_acct.* to slurm@'127.0.0.1'"
        )
        client = ["mariadb", "--no-defaults", f"--socket={data}/socket", "--user=root"]
        _wait_until(lambda: _succeeds(*client, "--execute=select 1"))
        _run(*client, f"--execute={rights}")

    def _configure_slurmdbd(self) -> None:
        folder = self.directory
        conf = folder / "slurmdbd.conf"
        conf.touch(mode=0o600)
        lines = {
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={folder}/munge.sock",
            "DbdHost": "localhost",
            "DbdPort": str(self._port),
            "SlurmUser": pwd.getpwuid(os.geteuid()).pw_name,
            "LogFile": f"{folder}/log/slurmdbd.log",
            "PidFile": f"{folder}/slurmdbd.pid",
            "StorageType": "accounting_storage/mysql",
            "StorageHost": "127.0.0.1",
            "StoragePort": str(self._mariadb_port),
            "StorageUser": "slurm",
            "StoragePass": "private",
            "StorageLoc": "slurm_acct",
        }
        conf.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))

    def _answers(self, *command: str) -> bool:
        with contextlib.suppress(SlurmError):
            self.run(*command)
            return True
        return False


def _wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise ClusterError(f"slurmdbd is not ready after {READY_SECONDS:g} s")
        time.sleep(0.1)


def _run(name: str, *arguments: str) -> None:
    process = subprocess.run(
        [find_program(name) or name, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if process.returncode != 0:
        raise ClusterError(f"{name}: {process.stderr or process.stdout}")


def _succeeds(*command: str) -> bool:
    process = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False
    )
    return process.returncode == 0

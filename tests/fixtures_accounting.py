"""A private Slurm cluster as a real site has it: slurmdbd over MariaDB, accounts, QOS and limits,
and an operator's account that is neither root nor SlurmUser.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from fixtures_cluster import wait_until

from examples.demo.cluster import NodeSpec, PrivateCluster, free_ports, missing_programs
from examples.demo.slurm_conf import find_program
from hopsd.errors import SlurmError

PACKAGES = ("slurmdbd", "slurm-wlm-mysql-plugin", "mariadb-server")
PROGRAMS = ("slurmdbd", "mariadbd", "mariadb-install-db", "mariadb")
OPERATOR, ALICE, BOB, CAROL = "backup", "games", "news", "mail"
"""Accounts that every Debian has; none is created."""
MARIADB_ACCOUNT = "nobody"

ROOT = Path(__file__).parents[1]
ENFORCED = "associations,limits,qos,safe"


class AccountingCluster(PrivateCluster):
    """Its account ``lab`` holds alice and bob, ``phys`` below it carol.

    hops_site.lua names OPERATOR, as docs/admin.md asks for. ``sacctmgr`` changes what the test
    wants changed; slurmctld is told by slurmdbd itself.
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
            f"AccountingStorageEnforce={ENFORCED}",
            "PriorityType=priority/multifactor",
            "PriorityWeightFairshare=1000",
            "PriorityWeightQOS=1000",
            *extra_conf,
        )
        super().__init__(directory, nodes=nodes, extra_conf=conf)

    def start_slurmctld(self, *, clean: bool = False) -> None:
        """It asks slurmdbd who is who, and tells it what GRES there are."""
        if self._mariadb is None:
            operators = f"return {{ operators = {{ {uid_of(OPERATOR)} }} }}\n"
            (self.directory / "hops_site.lua").write_text(operators)
            self._start_mariadb()
            self._start_slurmdbd()
        super().start_slurmctld(clean=clean)
        if clean:
            self._add_accounts()

    def sacctmgr(self, *words: str) -> str:
        return self.run("sacctmgr", "--immediate", *words)

    def stop(self) -> None:
        super().stop()
        self._stop("slurmdbd", signal.SIGTERM)
        if self._mariadb is not None:
            self._mariadb.kill()  # nobody will read it again
            self._mariadb.wait()

    def _start_mariadb(self) -> None:
        data, temporary = self.directory / "mariadb", self.directory / "mariadb-tmp"
        # A server that starts deletes every temporary table in its folder: in a shared one, others'
        # too. Of 16 installations, 8 at a time, 4 failed so, and none with folders of their own.
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
        assert program is not None
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
        wait_until(lambda: _succeeds(*client, "--execute=select 1"))
        _run(*client, f"--execute={rights}")

    def _start_slurmdbd(self) -> None:
        here = self.directory
        conf = here / "slurmdbd.conf"
        conf.touch(mode=0o600)
        lines = {
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={here}/munge.sock",
            "DbdHost": "localhost",
            "DbdPort": str(self._port),
            "SlurmUser": pwd.getpwuid(os.geteuid()).pw_name,
            "LogFile": f"{here}/log/slurmdbd.log",
            "PidFile": f"{here}/slurmdbd.pid",
            "StorageType": "accounting_storage/mysql",
            "StorageHost": "127.0.0.1",
            "StoragePort": str(self._mariadb_port),
            "StorageUser": "slurm",
            "StoragePass": "private",
            "StorageLoc": "slurm_acct",
        }
        conf.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        self._launch("slurmdbd")
        wait_until(lambda: self._answers("sacctmgr", "--noheader", "show", "cluster"))
        self.sacctmgr("add", "cluster", "hops")

    def _add_accounts(self) -> None:
        # GPUs can be limited once slurmctld has told slurmdbd of them.
        wait_until(lambda: "gpu" in self.run("sacctmgr", "--noheader", "show", "tres"))
        self.sacctmgr("add", "account", "lab")
        self.sacctmgr("add", "account", "phys", "parent=lab")
        for user, account in ((ALICE, "lab"), (BOB, "lab"), (CAROL, "phys")):
            self.sacctmgr("add", "user", user, f"account={account}")
        self.sacctmgr("add", "user", OPERATOR, "account=root", "adminlevel=operator")

    def _answers(self, *command: str) -> bool:
        with contextlib.suppress(SlurmError):
            self.run(*command)
            return True
        return False


def uid_of(name: str) -> int:
    return pwd.getpwnam(name).pw_uid


def python_of(name: str) -> list[str]:
    """A command that runs a Python which that account may enter, with hops and all it needs.

    This one or, where it lies in a closed folder, the system's of the same release.
    """
    paths = ":".join(filter(None, [str(ROOT), *sys.path]))
    system = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, system):
        command = ["env", f"PYTHONPATH={paths}", python]
        act_as = ["setpriv", f"--reuid={uid_of(name)}", "--regid=65534", "--clear-groups"]
        if _succeeds(*act_as, *command, "-c", "import hopsd.service.daemon, psycopg"):
            return command
    pytest.skip(f"{name} may not enter the folders of this Python or of hops")


@contextlib.contextmanager
def accounting_cluster(
    nodes: Sequence[NodeSpec], extra_conf: Sequence[str] = ()
) -> Iterator[AccountingCluster]:
    """Skips, with the reason, where the packages are missing or nobody else can be acted as."""
    if missing_programs() or not all(map(find_program, PROGRAMS)):
        pytest.skip(f"needs slurmdbd and MariaDB: apt-get install {' '.join(PACKAGES)}")
    if os.geteuid() != 0:
        pytest.skip("needs root, to act as several accounts")
    folder = Path(tempfile.mkdtemp(prefix="hops-site-"))
    folder.chmod(0o755)
    try:
        with AccountingCluster(folder, nodes, extra_conf) as cluster:
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(name: str, *arguments: str) -> None:
    done = subprocess.run(
        [find_program(name) or name, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{name}: {done.stderr or done.stdout}"


def _succeeds(*command: str) -> bool:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False
    )
    return done.returncode == 0

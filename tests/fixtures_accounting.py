"""A private Slurm cluster like that of a real site: slurmdbd with MariaDB, accounts, QOS and
limits, and an operator's account that is neither root nor SlurmUser.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from examples.demo.cluster import NodeSpec, missing_programs
from examples.demo.slurmdbd import PACKAGES, SlurmdbdCluster, missing_slurmdbd

OPERATOR, ALICE, BOB, CAROL = "backup", "games", "news", "mail"
"""Accounts that every Debian has; none is created."""

ROOT = Path(__file__).parents[1]


class AccountingCluster(SlurmdbdCluster):
    """Account ``lab`` has the users alice and bob; ``phys``, below it, has carol.

    hops_site.lua names OPERATOR, as docs/admin.md asks for. Tests change limits with ``sacctmgr``;
    slurmdbd itself informs slurmctld.
    """

    def prepare(self) -> None:
        operators = f"return {{ operators = {{ {uid_of(OPERATOR)} }} }}\n"
        (self.directory / "hops_site.lua").write_text(operators)

    def add_accounts(self) -> None:
        self.sacctmgr("add", "account", "lab")
        self.sacctmgr("add", "account", "phys", "parent=lab")
        for user, account in ((ALICE, "lab"), (BOB, "lab"), (CAROL, "phys")):
            self.sacctmgr("add", "user", user, f"account={account}")
        self.sacctmgr("add", "user", OPERATOR, "account=root", "adminlevel=operator")


def uid_of(name: str) -> int:
    return pwd.getpwnam(name).pw_uid


def python_of(name: str) -> list[str]:
    """A command for a Python that this account may run, with hops and everything it needs.

    That is this Python or, if it lies in a closed folder, the system's of the same release.
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
    """Skip, with the reason, if packages are missing or we cannot act as other accounts."""
    if missing_programs() or missing_slurmdbd():
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


def _succeeds(*command: str) -> bool:
    result = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False
    )
    return result.returncode == 0

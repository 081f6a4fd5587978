"""The facts about the machine that setup needs."""

from __future__ import annotations

import os
import pwd
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hopsd.config import DEFAULT_PATH, Config, load
from hopsd.errors import SlurmError
from hopsd.setup.change import SetupError
from hopsd.slurm.ask import slurm_conf
from hopsd.slurm.command import SlurmCommands
from hopsd.store.connection import local_database

PACKAGE_FOLDER = Path("/usr/share/hops/slurm")
ACCOUNT = "hops"


@dataclass(frozen=True)
class Machine:
    """A controller: ``running`` is slurmctld's running configuration, ``account`` is hopsd's."""

    running: Mapping[str, str]
    account: str
    config: Path = DEFAULT_PATH

    @property
    def slurm_conf(self) -> Path:
        return Path(self.running.get("SLURM_CONF", "/etc/slurm/slurm.conf"))

    @property
    def has_accounts(self) -> bool:
        return "slurmdbd" in self.running.get("AccountingStorageType", "")

    @property
    def uid(self) -> int | None:
        """The uid of hopsd's account; None if there is no such account."""
        try:
            return pwd.getpwnam(self.account).pw_uid
        except KeyError:
            return None

    @property
    def configuration(self) -> Config | None:
        """The configuration in hopsd.toml; None if there is none yet."""
        return load(self.config) if self.config.exists() else None

    @property
    def database(self) -> str | None:
        """The database's name in this machine's PostgreSQL; None if it is on another host."""
        config = self.configuration
        return local_database(config.database.dsn if config else "dbname=hops", self.account)


def hopsctl() -> str:
    return str(Path(sys.prefix) / "bin" / "hopsctl")


def release_folder(folder: str) -> Path:
    """The folder ``conf``, ``slurm_plugin`` or ``systemd``: beside the package in a checkout, else
    as installed.
    """
    checkout = Path(__file__).resolve().parents[2] / folder
    return checkout if checkout.is_dir() else Path(sys.prefix) / "share" / "hops" / folder


def plugin_folder() -> Path:
    """The submit plugin's folder: that of its Debian package, or where pip put it."""
    return PACKAGE_FOLDER if PACKAGE_FOLDER.is_dir() else release_folder("slurm_plugin")


def read_machine(config: Path = DEFAULT_PATH) -> Machine:
    """Read the facts of this machine.

    Raises:
        SetupError: not root, or slurmctld does not answer.
    """
    if os.geteuid() != 0:
        raise SetupError("hopsctl setup changes this machine: run it as root")
    try:
        running = slurm_conf(SlurmCommands(10.0))
    except SlurmError as error:
        raise SetupError(
            f"slurmctld must be running before hops is set up: {str(error).splitlines()[0]}"
        ) from error
    account = ACCOUNT
    if "slurmdbd" not in running.get("AccountingStorageType", ""):
        account = re.sub(r"\(\d+\)$", "", running.get("SlurmUser", "slurm"))
    return Machine(running, account, config)

"""Accounts that submit the demo's jobs, and the Python that they train with."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

CANDIDATES = ("nobody", "daemon", "games", "www-data")


@dataclass(frozen=True, slots=True)
class Account:
    """An account with its ``python``, which can import torch; ``uid`` None is the current user."""

    name: str
    uid: int | None
    gid: int | None
    python: Path
    pythonpath: str = ""

    def run(
        self, command: list[str], env: dict[str, str], cwd: Path
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as this account."""
        return subprocess.run(
            command,
            user=self.uid,
            group=self.gid,
            extra_groups=None if self.uid is None else [],
            env=env,
            cwd=cwd,
            text=True,
            capture_output=True,
            timeout=60,
            check=False,
        )


def accounts(work: Path) -> list[Account]:
    """Two existing accounts for root, otherwise the current user; creates none.

    An account that may not enter the folders of this Python (below /root, for example) uses the
    system's Python of the same release with a linked copy of the packages in ``work``.
    """
    me = Account(pwd.getpwuid(os.getuid()).pw_name, None, None, Path(sys.executable))
    if os.getuid() != 0:
        return [me]
    selection: list[Account] = []
    for name in CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if account := _with_python(name, entry.pw_uid, entry.pw_gid, work):
            selection.append(account)
        if len(selection) == 2:
            return selection
    print("demo: no other account can use this Python with PyTorch; root submits the jobs")
    return [me]


def _with_python(name: str, uid: int, gid: int, work: Path) -> Account | None:
    packages = sysconfig.get_path("purelib")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    system = Path("/usr/bin") / version
    tries = [(Path(sys.executable), ""), (system, packages)]
    for python, path in tries:
        account = Account(name, uid, gid, python, path)
        if _can_train(account, work):
            return account
    if system.exists():
        account = Account(name, uid, gid, system, str(_link_packages(Path(packages), work)))
        if _can_train(account, work):
            return account
    return None


def _link_packages(packages: Path, work: Path) -> Path:
    """Copy the packages to ``work``, with hard links on the same file system."""
    target = work / "packages"
    if not target.exists():
        copy = os.link if packages.stat().st_dev == work.stat().st_dev else shutil.copy2
        shutil.copytree(packages, target, copy_function=copy, symlinks=True)
    return target


def _can_train(account: Account, work: Path) -> bool:
    env = {"PATH": os.defpath, "PYTHONPATH": account.pythonpath}
    try:
        process = account.run([str(account.python), "-c", "import torch, numpy"], env, work)
    except OSError:
        return False
    return process.returncode == 0

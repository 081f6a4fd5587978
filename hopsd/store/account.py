"""The account that the private server runs as, and which folders it can enter."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import TypedDict

from hopsd.errors import StoreError

ACCOUNTS = ("postgres", "nobody")


class Identity(TypedDict):
    """subprocess' arguments for the account of a new process; None keeps our own."""

    user: int | None
    group: int | None
    extra_groups: list[int] | None


def identity(account: pwd.struct_passwd | None) -> Identity:
    """Return subprocess' arguments to start a process as ``account``, or as ourselves if None."""
    if account is None:
        return {"user": None, "group": None, "extra_groups": None}
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def server_account() -> pwd.struct_passwd | None:
    """The server's account; None for our own. PostgreSQL refuses root, so root needs another."""
    if os.geteuid() != 0:
        return None
    for name in ACCOUNTS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise StoreError("PostgreSQL does not run as root: create an account postgres or nobody")


def reachable(folder: Path, account: pwd.struct_passwd | None) -> bool:
    """Whether ``account`` may enter ``folder``, by the permissions of it and all its parents."""
    if account is None:
        return os.access(folder, os.X_OK)
    resolved_folder = folder.resolve()
    return all(_may_enter(part, account) for part in (resolved_folder, *resolved_folder.parents))


def _may_enter(folder: Path, account: pwd.struct_passwd) -> bool:
    status = folder.stat()
    if status.st_uid == account.pw_uid:
        return bool(status.st_mode & 0o100)
    if status.st_gid == account.pw_gid:
        return bool(status.st_mode & 0o010)
    return bool(status.st_mode & 0o001)

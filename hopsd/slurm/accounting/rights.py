"""What hopsd's account may do and see in Slurm; coordinators of accounts."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from hopsd.errors import SlurmError
from hopsd.slurm.ask import slurm_conf
from hopsd.slurm.command import SlurmCommands

_COMMENT = re.compile(r"--[^\n]*")
_OPERATORS = re.compile(r"operators\s*=\s*\{([^}]*)\}")
_LEVELS = ("Operator", "Administrator")


def missing_rights(commands: SlurmCommands, uid: int, user: str) -> list[str]:
    """List the rights that the account lacks, each with how to grant it; empty if none.

    Raises:
        SlurmError: slurmctld does not answer.
    """
    conf = slurm_conf(commands)
    if _is_slurm_user(conf, uid):
        return []
    return [*_no_operator(commands, conf, user), *_not_in_lua(conf, uid)]


def _is_slurm_user(conf: Mapping[str, str], uid: int) -> bool:
    return uid == 0 or conf.get("SlurmUser", "").endswith(f"({uid})")


def processor_time_refusal(commands: SlurmCommands) -> str:
    """Why slurmd does not tell this process other users' processor time; empty if it does.

    slurmd (22.05 to 26.05) answers only root and SlurmUser. It logs an error for each step that
    another account, such as an operator's, asks about.

    Raises:
        SlurmError: slurmctld does not answer.
    """
    conf = slurm_conf(commands)
    if _is_slurm_user(conf, os.getuid()):
        return ""
    return "Slurm tells other users' processor time (sstat) only to root and SlurmUser"


def _no_operator(commands: SlurmCommands, conf: Mapping[str, str], user: str) -> list[str]:
    """Ask slurmctld itself: it reports its users' admin levels even while slurmdbd is down."""
    if "slurmdbd" not in conf.get("AccountingStorageType", ""):
        slurm_user = conf.get("SlurmUser", "SlurmUser").partition("(")[0]
        return [
            (
                f"{user} may not change other users' jobs: without slurmdbd there are no operators,"
                f" so hopsd must run as {slurm_user} (or root)"
            )
        ]
    if is_operator(commands, user):
        return []
    return [
        (
            f"{user} may not change other users' jobs: it is not a Slurm operator;"
            f" sacctmgr add user {user} account=root adminlevel=operator"
        )
    ]


def is_operator(commands: SlurmCommands, user: str) -> bool:
    """Whether slurmctld knows the account as an operator or administrator.

    Raises:
        SlurmError: slurmctld does not answer.
    """
    output = commands.run("scontrol", "show", "assoc_mgr", f"users={user}", "flags=users", "-o")
    match = re.search(rf"^UserName={re.escape(user)}\(.*\bAdminLevel=(\S+)", output, re.MULTILINE)
    return match is not None and match[1] in _LEVELS


def _not_in_lua(conf: Mapping[str, str], uid: int) -> list[str]:
    """Check hops_site.lua: the submit plugin lets only the accounts there change a hops job."""
    if "lua" not in conf.get("JobSubmitPlugins", ""):
        return []
    path = Path(conf.get("SLURM_CONF", "/etc/slurm/slurm.conf")).parent / "hops_site.lua"
    try:
        text = _COMMENT.sub("", path.read_text())
    except OSError as error:
        text, cause = "", f" ({error.strerror})"
    else:
        cause = ""
    match = _OPERATORS.search(text)
    if match is not None and str(uid) in re.findall(r"\d+", match[1]):
        return []
    return [
        (
            f"job_submit.lua refuses uid {uid}: {path} does not name it{cause};"
            f" operators = {{ {uid} }} there, then touch job_submit.lua"
        )
    ]


def own_missing_rights(commands: SlurmCommands, user: str) -> list[str]:
    """List the rights that this process's account lacks, or say that Slurm does not answer."""
    try:
        return missing_rights(commands, os.getuid(), user)
    except SlurmError as error:
        return [f"cannot check the rights of {user}: {error}"]


def coordinated_accounts(commands: SlurmCommands, user: str) -> frozenset[str]:
    """The accounts that ``user`` coordinates; empty while slurmdbd does not answer."""
    try:
        output = commands.run(
            "sacctmgr", "-nP", "show", "account", "withcoord", "format=account,coord"
        )
    except SlurmError:
        return frozenset()
    lines = [line.partition("|") for line in output.splitlines()]
    return frozenset(name for name, _, people in lines if user in people.split(","))

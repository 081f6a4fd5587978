"""The setup steps in order; undo runs them in reverse.

Each step checks the machine and returns the remaining changes, none if it is complete.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hopsd.setup import site_script, slurm_conf
from hopsd.setup.change import (
    BACKUP,
    Change,
    Remove,
    RunCommand,
    SetupError,
    SymbolicLink,
    Wait,
    Write,
    output,
)
from hopsd.setup.machine import ACCOUNT, Machine, hopsctl, plugin_folder, release_folder
from hopsd.setup.site_lua import with_operator
from hopsd.slurm.accounting.rights import is_operator
from hopsd.slurm.ask import slurm_conf as ask_slurm_conf
from hopsd.slurm.command import SlurmCommands

SUPERUSER = "postgres"
DROP_IN = Path("/etc/systemd/system/hopsd.service.d/hops-setup.conf")
TMPFILES = Path("/etc/tmpfiles.d/hops.conf")
PATIENCE = 30.0
"""Seconds for slurmctld to restart, or to learn of a new operator."""

Changes = Sequence[Change]


@dataclass(frozen=True, slots=True)
class SetupStep:
    """A step of setup: ``apply`` returns the changes to make, ``undo`` those that revert them."""

    name: str
    title: str
    apply: Callable[[Machine], Changes]
    undo: Callable[[Machine], Changes]


def configuration(machine: Machine) -> Changes:
    if refusal := slurm_conf.refusal(machine.running):
        raise SetupError(refusal)
    if machine.config.exists():
        return []
    return [Write(machine.config, (release_folder("conf") / "hopsd.toml").read_text())]


def no_changes(_: Machine) -> Changes:
    """Undo nothing: the configuration is the administrator's, and its package removes it."""
    return []


def account(machine: Machine) -> Changes:
    """Make hopsd run as SlurmUser if there is no slurmdbd, since Slurm then has no operators."""
    if machine.account == ACCOUNT:
        return []
    user = machine.account
    unit = f"[Service]\nUser={user}\nGroup={user}\n"
    folders = (release_folder("systemd") / "hops.tmpfiles.conf").read_text()
    folders = folders.replace(f"{ACCOUNT} {ACCOUNT} -", f"{user} {user} -")
    return [
        *_write_if_changed(DROP_IN, unit, RunCommand(("systemctl", "daemon-reload"))),
        *_write_if_changed(
            TMPFILES, folders, RunCommand(("systemd-tmpfiles", "--create", str(TMPFILES)))
        ),
    ]


def no_account(_: Machine) -> Changes:
    changes: list[Change] = [Remove(path) for path in (DROP_IN, TMPFILES) if path.exists()]
    return [*changes, RunCommand(("systemctl", "daemon-reload"))] if changes else []


def _write_if_changed(path: Path, text: str, command: RunCommand) -> Iterable[Change]:
    if path.exists() and path.read_text() == text:
        return []
    return [Write(path, text), command]


def database(machine: Machine) -> Changes:
    name = machine.database
    migrate = (hopsctl(), "migrate", "--config", str(machine.config))
    if name is None:
        return (
            []
            if output((*migrate, "--check"), machine.account)[0] == 0
            else [RunCommand(migrate, machine.account)]
        )
    changes: list[Change] = []
    if not _in_postgres("SELECT count(*) FROM pg_roles WHERE rolname = :'name'", machine.account):
        changes.append(RunCommand(("createuser", machine.account), SUPERUSER))
    if not _in_postgres("SELECT count(*) FROM pg_database WHERE datname = :'name'", name):
        changes.append(RunCommand(("createdb", f"--owner={machine.account}", name), SUPERUSER))
    if changes or output((*migrate, "--check"), machine.account)[0] != 0:
        changes.append(RunCommand(migrate, machine.account))
    return changes


def no_database(machine: Machine) -> Changes:
    name = machine.database
    if name is None or shutil.which("psql") is None:
        return []
    changes: list[Change] = []
    if _in_postgres("SELECT count(*) FROM pg_database WHERE datname = :'name'", name):
        changes.append(RunCommand(("dropdb", name), SUPERUSER))
    if _in_postgres("SELECT count(*) FROM pg_roles WHERE rolname = :'name'", machine.account):
        changes.append(RunCommand(("dropuser", machine.account), SUPERUSER))
    return changes


def _in_postgres(query: str, name: str) -> bool:
    """Whether a query run as PostgreSQL's superuser finds ``name``."""
    if shutil.which("psql") is None:
        raise SetupError(
            "PostgreSQL is not on this machine: install it (apt install postgresql), or set"
            " database.dsn in hopsd.toml to one on another machine"
        )
    words = ("psql", "-X", "-t", "-A", "-d", "postgres", "-v", f"name={name}", "-f", "-")
    status, answer = output(words, SUPERUSER, query)
    if status:
        raise SetupError(f"PostgreSQL does not answer: {answer}")
    return answer != "0"


def operator(machine: Machine) -> Changes:
    if not machine.has_accounts or is_operator(SlurmCommands(10.0), machine.account):
        return []
    _, existing_user = output(("sacctmgr", "-nP", "show", "user", machine.account, "format=user"))
    words = (
        ("modify", "user", machine.account, "set", "adminlevel=operator")
        if existing_user == machine.account
        else ("add", "user", machine.account, "account=root", "adminlevel=operator")
    )
    return [
        RunCommand(("sacctmgr", "-i", *words)),
        Wait(
            "wait until slurmctld knows the operator",
            lambda: is_operator(SlurmCommands(10.0), machine.account),
            PATIENCE,
        ),
    ]


def no_operator(machine: Machine) -> Changes:
    if not machine.has_accounts or machine.account != ACCOUNT:
        return []
    _, existing_user = output(("sacctmgr", "-nP", "show", "user", ACCOUNT, "format=user"))
    return (
        [RunCommand(("sacctmgr", "-i", "remove", "user", ACCOUNT))]
        if existing_user == ACCOUNT
        else []
    )


def plugin(machine: Machine) -> Changes:
    folder, shipped_folder = machine.slurm_conf.parent, plugin_folder()
    changes: list[Change] = []
    script = folder / "job_submit.lua"
    present_text = script.read_text(errors="surrogateescape") if script.exists() else None
    if present_text is None or site_script.is_ours(present_text):
        if not (script.is_symlink() and script.readlink() == shipped_folder / script.name):
            changes.append(SymbolicLink(script, shipped_folder / script.name))
    elif site_script.called_plugin(present_text) is None:
        new_text = site_script.with_call(present_text, shipped_folder / script.name)
        changes.append(Write(script, new_text, keep=True))
    site = folder / "hops_site.lua"
    site_text = site.read_text() if site.exists() else None
    text = (shipped_folder / site.name).read_text() if site_text is None else site_text
    if machine.uid is None:
        raise SetupError(f"there is no account {machine.account} on this machine; systemd-sysusers")
    if machine.account == ACCOUNT:
        with_uid = with_operator(text, machine.uid)
        if with_uid is None:
            raise SetupError(f"{site}: no list of operators; add operators = {{ {machine.uid} }}")
        text = with_uid
    if text != site_text:
        changes.append(Write(site, text))
    return changes


def no_plugin(machine: Machine) -> Changes:
    folder = machine.slurm_conf.parent
    script, site = folder / "job_submit.lua", folder / "hops_site.lua"
    changes: list[Change] = []
    if script.is_symlink() and script.readlink().parent == plugin_folder():
        changes.append(Remove(script))
    elif script.exists():
        changes += _restore(script, site_script.without_call)
    if site.exists():
        changes.append(Remove(site))
    return changes


def slurm(machine: Machine) -> Changes:
    path = machine.slurm_conf
    text = path.read_text()
    lines = slurm_conf.required_lines(slurm_conf.values(path))
    new_text = slurm_conf.with_block(text, lines)
    changes: list[Change] = [] if new_text == text else [Write(path, new_text, keep=True)]
    if changes or not slurm_conf.in_force(lines, machine.running):
        changes += _restart_changes(lines)
    return changes


def no_slurm(machine: Machine) -> Changes:
    changes = _restore(machine.slurm_conf, slurm_conf.without_block)
    return [*changes, *_restart_changes({})] if changes else []


def _restore(path: Path, strip: Callable[[str], str]) -> list[Change]:
    """Remove setup's lines from the file, and its backup if it is then identical."""
    text = path.read_text(errors="surrogateescape")
    plain = strip(text)
    if plain == text:
        return []
    backup = Path(f"{path}{BACKUP}")
    is_original = backup.exists() and backup.read_text(errors="surrogateescape") == plain
    return [Write(path, plain), *([Remove(backup)] if is_original else [])]


def _restart_changes(lines: dict[str, str]) -> Changes:
    """Restart slurmctld, since before 23.11 only that loads a submit plugin; jobs run on."""

    def running() -> bool:
        status, _ = output(("scontrol", "ping"))
        return status == 0 and slurm_conf.in_force(lines, ask_slurm_conf(SlurmCommands(10.0)))

    return [
        RunCommand(("systemctl", "restart", "slurmctld")),
        RunCommand(("scontrol", "reconfigure"), patience=PATIENCE),
        Wait("wait until slurmctld runs with these lines", running, PATIENCE),
    ]


def service(_: Machine) -> Changes:
    checks = (output(("systemctl", word, "hopsd")) for word in ("is-enabled", "is-active"))
    return (
        []
        if all(status == 0 for status, _ in checks)
        else [RunCommand(("systemctl", "enable", "--now", "hopsd"))]
    )


def no_service(_: Machine) -> Changes:
    changes: list[Change] = []
    if output(("systemctl", "is-active", "hopsd"))[0] == 0:
        changes.append(RunCommand((hopsctl(), "pause", "--release-held")))
    if changes or output(("systemctl", "is-enabled", "hopsd"))[0] == 0:
        changes.append(RunCommand(("systemctl", "disable", "--now", "hopsd")))
    return changes


STEPS = (
    SetupStep("configuration", "hopsd.toml", configuration, no_changes),
    SetupStep("account", "hopsd's account", account, no_account),
    SetupStep("database", "the database", database, no_database),
    SetupStep("operator", "hopsd's rights in Slurm", operator, no_operator),
    SetupStep("plugin", "the submit plugin", plugin, no_plugin),
    SetupStep("slurm", "slurm.conf", slurm, no_slurm),
    SetupStep("service", "hopsd itself", service, no_service),
)

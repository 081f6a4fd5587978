"""Changes show what they will do, do it, and keep a backup of what they replace."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from hopsd.setup.change import BACKUP, Remove, RunCommand, SetupError, SymbolicLink, Wait, Write


def test_a_new_text_is_shown_as_a_diff_and_keeps_mode_and_backup(tmp_path: Path) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text("a=1\n")
    path.chmod(0o640)
    change = Write(path, "a=1\nb=2\n", keep=True)
    assert "+b=2" in change.description.splitlines()
    change.make()
    Write(path, "a=1\nb=3\n", keep=True).make()
    assert path.read_text() == "a=1\nb=3\n"
    assert path.stat().st_mode & 0o777 == 0o640
    assert Path(f"{path}{BACKUP}").read_text() == "a=1\n", "the oldest copy"


def test_a_file_behind_a_link_is_written_and_the_link_kept(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("a\n")
    (tmp_path / "link").symlink_to("real")
    Write(tmp_path / "link", "b\n").make()
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "b\n"


def test_a_link_replaces_an_existing_file(tmp_path: Path) -> None:
    path = tmp_path / "job_submit.lua"
    path.write_text("old")
    SymbolicLink(path, tmp_path / "new").make()
    assert path.readlink() == tmp_path / "new"
    Remove(path).make()
    Remove(path).make()
    assert not path.is_symlink()


def test_a_failing_command_is_reported_with_its_output() -> None:
    with pytest.raises(SetupError, match=r"sh -c.*: no such database"):
        RunCommand(("sh", "-c", "echo no such database >&2; exit 1")).make()
    with pytest.raises(SetupError, match="/no/such/program"):
        RunCommand(("/no/such/program",)).make()


def test_a_command_is_retried_until_its_deadline(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    RunCommand(("sh", "-c", f"test -e {flag} || {{ touch {flag}; false; }}"), patience=20).make()


def test_an_outcome_that_does_not_come_ends_the_wait() -> None:
    with pytest.raises(SetupError, match="the daemon is up"):
        Wait("the daemon is up", lambda: False, 0.0).make()


@pytest.mark.skipif(os.geteuid() != 0, reason="changes the account")
def test_a_command_runs_as_its_user(tmp_path: Path) -> None:
    nobody_account = pwd.getpwnam("nobody")
    change = RunCommand(("sh", "-c", f"test $(id -u) = {nobody_account.pw_uid}"), "nobody")
    assert change.description.startswith("sudo -u nobody ")
    with pytest.raises(SetupError, match="hops-has-no-such-user"):
        RunCommand(("true",), "hops-has-no-such-user").make()

"""The unit and its helpers, checked by systemd's own tools."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

SYSTEMD = Path(__file__).resolve().parents[1] / "systemd"


def run(tool: str, *args: object) -> subprocess.CompletedProcess[str]:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    return subprocess.run(
        [tool, *map(str, args)], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit, with its programs in a folder that exists."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("hopsd", "hopsctl"):
        (programs / name).symlink_to("/bin/true")
    text = (SYSTEMD / "hopsd.service").read_text()
    assert "/opt/hops/bin/hopsd" in text
    path = tmp_path / "hopsd.service"
    path.write_text(text.replace("/opt/hops/bin", str(programs)))
    return path


def test_systemd_accepts_the_unit(unit: Path) -> None:
    result = run("systemd-analyze", "verify", "--man=no", unit)
    assert (result.returncode, result.stderr) == (0, "")


def test_systemd_rejects_a_wrong_line(unit: Path) -> None:
    unit.write_text(unit.read_text().replace("WatchdogSec=", "WatchdogSecs="))
    assert "WatchdogSecs" in run("systemd-analyze", "verify", "--man=no", unit).stderr


def test_the_unit_is_confined(unit: Path) -> None:
    """Exposure is at most 1.5, where 10 is a unit without any confinement."""
    result = run("systemd-analyze", "security", "--offline=true", "--threshold=15", unit)
    assert result.returncode == 0, result.stdout


def test_the_unit_cannot_exhaust_the_machine(unit: Path) -> None:
    settings = dict(line.split("=", 1) for line in unit.read_text().splitlines() if "=" in line)
    for name in ("MemoryHigh", "MemoryMax", "TasksMax", "LimitNOFILE"):
        assert settings[name] not in ("", "infinity"), name


def test_a_stop_signals_only_hopsd(unit: Path) -> None:
    """The round under way still needs its scontrol; what remains after that is killed."""
    assert "KillMode=mixed" in unit.read_text().splitlines()


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another account")
def test_everybody_may_leave_a_report_and_only_hopsd_lists_them(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    root = f"--root={tmp_path}"
    result = run("systemd-sysusers", root, SYSTEMD / "hops.sysusers.conf")
    assert result.returncode == 0, result.stderr
    result = run("systemd-tmpfiles", root, "--create", SYSTEMD / "hops.tmpfiles.conf")
    assert result.returncode == 0, result.stderr
    (account,) = (tmp_path / "etc" / "passwd").read_text().splitlines()
    folder = (tmp_path / "var" / "spool" / "hops" / "reports").stat()
    assert account.split(":")[:3] == ["hops", "x", str(folder.st_uid)]
    assert stat.S_IMODE(folder.st_mode) == 0o1733

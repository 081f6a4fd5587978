"""debian/: checks of the packages that do not require a build."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
DEBIAN = ROOT / "debian"
SCRIPTS = sorted(p for p in DEBIAN.iterdir() if re.search(r"\.(pre|post)(inst|rm)$", p.name))


def test_the_changelog_has_this_version() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    first = (DEBIAN / "changelog").read_text().partition("\n")[0]
    assert first.startswith(f"hops ({setup['metadata']['version']}) ")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_maintainer_scripts_are_shell(script: Path) -> None:
    text = script.read_text()
    assert text.startswith("#!/bin/sh\n")
    assert "\nset -e\n" in text
    assert "\n#DEBHELPER#\n" in text
    subprocess.run(["sh", "-n", script], check=True, timeout=10)


def test_every_file_of_a_node_and_of_the_controller_is_packaged() -> None:
    rules = (DEBIAN / "rules").read_text()
    for path in (ROOT / "slurm_plugin").iterdir():
        install_line = f"/{path.name}\n" if path.is_symlink() else f"slurm_plugin/{path.name}"
        assert install_line in rules, path.name


@pytest.mark.slow
def test_hopsctl_loads_with_debian_12s_click() -> None:
    """Regression: click 8.1's ParamType takes no type parameter, so the package did not build."""
    load = """
import click, importlib, pkgutil
click.ParamType.__class_getitem__ = None
import hopsd.ctl
for module in pkgutil.walk_packages(hopsd.ctl.__path__, "hopsd.ctl."):
    importlib.import_module(module.name)
"""
    result = subprocess.run(
        [sys.executable, "-c", load], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


def lock_lines() -> dict[str, list[str]]:
    """The lines of each release in requirements.lock by project."""
    lines: dict[str, list[str]] = {}
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        release = re.match(r"([\w-]+)==\S+", line)
        if release:
            name = release[1]
        if not line.startswith("#"):
            lines.setdefault(name, []).append(line.strip(" \\"))
    return lines


def test_the_lock_has_a_release_with_hashes_for_each_requirement() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = [setup["options.extras_require"][extra] for extra in ("highs", "metrics", "web")]
    lock = lock_lines()
    for line in "\n".join([setup["options"]["install_requires"], *extras]).split():
        requirement = Requirement(line)
        versions = [
            re.match(r"\S+==(\S+)", line_of_lock)
            for line_of_lock in lock[canonicalize_name(requirement.name)]
        ]
        locked_versions = [version[1] for version in versions if version]
        assert locked_versions, line
        assert all(requirement.specifier.contains(version) for version in locked_versions), (
            line,
            locked_versions,
        )
    for name, lines in lock.items():
        assert any(line_of_lock.startswith("--hash=sha256:") for line_of_lock in lines), name


def dependencies(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, DEBIAN / "dependencies.py", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def installed_releases(tmp_path: Path, *names: str) -> subprocess.CompletedProcess[str]:
    """The releases that the build installs in place of those that pip would choose."""
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"install": [{"metadata": {"name": name}} for name in names]}))
    return dependencies("pinned", report)


def test_the_build_installs_exactly_the_lock(tmp_path: Path) -> None:
    (release,) = [line for line in lock_lines()["pulp"] if line.startswith("pulp==")]
    result = installed_releases(tmp_path, "PuLP")
    assert result.stdout.startswith(release)
    assert "--hash=sha256:" in result.stdout
    assert result.stdout.count("==") == 1
    failure = installed_releases(tmp_path, "leftpad")
    assert failure.returncode == 1
    assert "requirements.lock has no leftpad: make lock" in failure.stderr


def test_constraints_are_releases_without_hashes() -> None:
    lines = dependencies("constraints").stdout.splitlines()
    assert "pulp==" in "".join(lines)
    assert all(re.fullmatch(r"[\w-]+==[^ ]+( ; .*[^\\ ])?", line) for line in lines), lines

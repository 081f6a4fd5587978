"""debian/: what can be said of the packages without building them."""

from __future__ import annotations

import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

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


def test_every_file_of_a_node_and_of_the_controller_is_in_a_package() -> None:
    rules = (DEBIAN / "rules").read_text()
    for path in (ROOT / "slurm_plugin").iterdir():
        shipped = f"/{path.name}\n" if path.is_symlink() else f"slurm_plugin/{path.name}"
        assert shipped in rules, path.name


def test_hopsctl_loads_with_debian_12s_click() -> None:
    """Its ParamType takes no parameter (8.1): the package was not built."""
    load = """
import click, importlib, pkgutil
click.ParamType.__class_getitem__ = None
import hopsd.ctl
for module in pkgutil.walk_packages(hopsd.ctl.__path__, "hopsd.ctl."):
    importlib.import_module(module.name)
"""
    done = subprocess.run([sys.executable, "-c", load], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

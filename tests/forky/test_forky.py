"""The adapters' contract once more: Debian forky's Slurm, through pyslurm and through commands.

Takes minutes and the network, so ``make test`` leaves it out; ``make test-forky`` runs it.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

HERE = Path(__file__).resolve().parent
UNABLE, UNBUILDABLE = 3, 4  # build.sh's own exit status
LEAST_THROUGH_PYSLURM = 30

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif("HOPS_FORKY" not in os.environ, reason="run it by: make test-forky"),
]


@pytest.fixture(scope="module")
def root() -> Path:
    """The forky root; skipped with the versions where pyslurm and the suite's Slurm part."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = Path(os.environ.get("HOPS_FORKY_ROOT") or cache / "hops" / "forky")
    built = subprocess.run(
        [HERE / "build.sh", path], stderr=subprocess.PIPE, text=True, check=False
    )
    print(built.stderr)
    said = built.stderr.strip().splitlines()[-1:]
    if built.returncode in (UNABLE, UNBUILDABLE):
        pytest.skip(f"NOT TESTED: {' '.join(said)}")
    assert built.returncode == 0, built.stderr
    return path


def test_contract(root: Path) -> None:
    report = root / "tmp" / "contract.xml"
    report.unlink(missing_ok=True)
    tests = ["tests/slurm", "tests/plugin", "-m", "live"]
    quiet = ["-q", "-p", "no:cacheprovider", "--junitxml=/tmp/contract.xml"]
    command = [HERE / "enter.sh", root, "/venv/bin/python", "-m", "pytest", *tests, *quiet]
    done = subprocess.run(command, check=False)
    assert done.returncode == 0
    cases = [
        case
        for case in ElementTree.parse(report).iter("testcase")  # noqa: S314  # written just above
        if "[pyslurm" in case.get("name", "")
    ]
    skipped = [case.get("name") for case in cases if case.find("skipped") is not None]
    assert skipped == []
    assert len(cases) >= LEAST_THROUGH_PYSLURM

"""The contract with Slurm once more, on the releases of other Debian suites.

Takes minutes and the network, so ``make test`` leaves it out; ``make test-forky``,
``make test-trixie`` and ``make test-releases`` run it.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

FOLDER = Path(__file__).resolve().parent
UNABLE, UNBUILDABLE = 3, 4  # build.sh's own exit status
WANTED_SUITES = {name for name in os.environ.get("HOPS_RELEASES", "").split(",") if name}


@dataclass(frozen=True)
class Release:
    """A Debian suite with its Slurm. ``through_pyslurm``: the least tests that go through it."""

    suite: str
    slurm: str
    through_pyslurm: int


RELEASES = [Release("trixie", "24.11", 0), Release("forky", "26.05", 30)]

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(params=RELEASES, ids=lambda release: release.suite)
def release(request: pytest.FixtureRequest) -> Release:
    selected_release: Release = request.param
    if selected_release.suite not in WANTED_SUITES:
        pytest.skip(f"run it by: make test-{selected_release.suite}")
    return selected_release


@pytest.fixture
def root(release: Release) -> Path:
    """The suite's root; skipped with the versions where pyslurm and the suite's Slurm part."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = cache / "hops" / "releases" / release.suite
    build = subprocess.run(
        [FOLDER / "build.sh", release.suite, path], stderr=subprocess.PIPE, text=True, check=False
    )
    print(build.stderr)
    error_lines = build.stderr.strip().splitlines()[-1:]
    if build.returncode in (UNABLE, UNBUILDABLE):
        pytest.skip(f"NOT TESTED: {' '.join(error_lines)}")
    assert build.returncode == 0, build.stderr
    return path


def test_the_contract_tests_pass_on_other_releases(release: Release, root: Path) -> None:
    """What failed is run once more, alone: live tests have deadlines, and a machine may be busy."""
    report = root / "tmp" / "contract.xml"
    report.unlink(missing_ok=True)
    command = [FOLDER / "enter.sh", root, "/venv/bin/python", "-m", "pytest", "-q", "-m", "live"]
    command += ["tests/slurm", "tests/plugin", "tests/scripts/test_scripts_live.py"]
    command += ["tests/scripts/test_behaviours_live.py"]
    command += ["tests/daemon/test_sessions_live.py"]
    command += ["-o", "cache_dir=/tmp/contract-cache"]
    first = subprocess.run([*command, "-n", "2", "--junitxml=/tmp/contract.xml"], check=False)
    if first.returncode == pytest.ExitCode.TESTS_FAILED:
        second_run = subprocess.run([*command, "--last-failed"], check=False)
        assert second_run.returncode == 0
    else:
        assert first.returncode == 0
    cases = [
        case
        for case in ElementTree.parse(report).iter("testcase")  # noqa: S314  # written just above
        if "[pyslurm" in case.get("name", "")
    ]
    if release.through_pyslurm:
        skipped_cases = [case.get("name") for case in cases if case.find("skipped") is not None]
        assert skipped_cases == []
        assert len(cases) >= release.through_pyslurm

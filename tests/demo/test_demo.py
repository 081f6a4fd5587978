"""`make demo` as a newcomer runs it, and interrupted in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from examples.demo.cluster import PACKAGES, missing_programs
from hopsd.core.submission.comment import parse

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        bool(missing_programs()), reason=f"needs Slurm: apt-get install {' '.join(PACKAGES)}"
    ),
]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for the demo's temporary files that every account may enter."""
    with tempfile.TemporaryDirectory(prefix="demo-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def start_demo(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "examples.demo", folder / "out"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def processes_of(folder: Path) -> list[str]:
    """Return the processes whose command line or environment names the folder."""
    command_lines = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes() + (path / "environ").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in command and int(path.name) != os.getpid():
            command_lines.append((path / "cmdline").read_text(errors="replace").replace("\0", " "))
    return command_lines


def assert_nothing_left(folder: Path) -> None:
    deadline = time.monotonic() + 60.0
    while (leftovers := processes_of(folder)) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert leftovers == []
    assert list(folder.glob("hops-*")) == []


@pytest.mark.long
def test_every_job_completes_within_its_set_and_one_is_moved(folder: Path) -> None:
    demo = start_demo(folder)
    output, _ = demo.communicate(timeout=500)
    assert demo.returncode == 0, output[-6000:]
    assert_nothing_left(folder)
    report = json.loads((folder / "out" / "report.json").read_text())
    schema = json.loads((ROOT / "docs" / "schema" / "demo-report.schema.json").read_text())
    jsonschema.validate(report, schema)
    assert len(report["jobs"]) >= 8
    for job in report["jobs"]:
        requested_counts = parse(job["comment"]).reqs
        assert job["state"] == "COMPLETED"
        assert job["end"] > job["submit"]
        for placement in job["placements"]:
            assert placement["profiling"] or sum(placement["nodes"].values()) in requested_counts
    moved_jobs = [job for job in report["jobs"] if job["restarts"] and len(job["placements"]) > 1]
    assert moved_jobs
    assert any(len(p["nodes"]) > 1 for job in report["jobs"] for p in job["placements"])
    assert not any(p["profiling"] for job in report["jobs"] for p in job["placements"])


@pytest.mark.long
@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "kill"])
def test_an_interrupted_demo_leaves_nothing_behind(
    folder: Path, signal_number: signal.Signals
) -> None:
    demo = start_demo(folder)
    assert demo.stdout is not None
    for line in demo.stdout:
        if "start done" in line:
            break
    demo.send_signal(signal_number)
    demo.communicate(timeout=90)
    assert demo.returncode in (130, 143)
    assert_nothing_left(folder)


def test_a_folder_with_files_is_not_emptied(folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "thesis.tex").write_text("years of work")
    demo = start_demo(folder)
    output, _ = demo.communicate(timeout=60)
    assert demo.returncode == 2
    assert "is not empty; name a new folder" in output
    assert (folder / "out" / "thesis.tex").exists()

"""Run docs/tutorial.md, command by command, in the demo's shell."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from examples.demo.cluster import PACKAGES, missing_programs

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "tutorial.md").read_text()
PATIENCE = 240.0
"""Seconds; a machine at leisure needs a tenth of it for the slowest step."""
END = "--end of answer--"

live = [
    pytest.mark.live,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(
        not os.environ.get("HOPS_TUTORIAL"), reason="takes two minutes: make test-tutorial"
    ),
    pytest.mark.skipif(
        bool(missing_programs()), reason=f"needs Slurm: apt-get install {' '.join(PACKAGES)}"
    ),
]


@dataclass(frozen=True, slots=True)
class Step:
    """A command, and text that its output must eventually contain; "" if it only has to succeed."""

    command: str
    expected: str = ""


def steps() -> list[Step]:
    """Return the steps of the page in order."""
    matches = re.findall(
        r"^(?:<!-- until: (.+) -->\n)?    \$ ((?:.*\\\n)*.*)$", PAGE, flags=re.MULTILINE
    )
    return [Step(re.sub(r"\\\n\s*", "", command), text) for text, command in matches]


class Shell:
    """A shell on the demo's cluster, with standard error merged into its output."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "examples.demo.shell", "bash"],
            cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, env={**os.environ, "TMPDIR": str(folder), "COLUMNS": "80"},
        )  # fmt: skip

    def ask(self, command: str) -> tuple[int, str]:
        """Run a command; return its exit code and output."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\necho; echo '{END}' $?\n")
        self._process.stdin.flush()
        output = ""
        for line in self._process.stdout:
            if line.startswith(END):
                return int(line.removeprefix(END)), output
            output += line
        raise AssertionError(f"{command}: the shell has ended\n{output}")

    def follow(self, step: Step) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            code, output = self.ask(f"set -o pipefail; {step.command}")
            if code == 0 and re.search(step.expected, output, re.MULTILINE):
                return
            assert step.expected, f"{step.command}: exit code {code}\n{output}"
            assert time.monotonic() < deadline, f"{step.command}: not {step.expected!r}\n{output}"
            time.sleep(0.3)

    def leave(self) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.read()
        self._process.stdout.close()
        return self._process.wait(90)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A copy of what the tutorial needs of this repository."""
    with tempfile.TemporaryDirectory(prefix="tutorial-test-") as name:
        Path(name).chmod(0o755)
        for part in ("conf", "examples", "profiler", "slurm_plugin", "migrations"):
            shutil.copytree(ROOT / part, Path(name) / part, symlinks=True)
        yield Path(name)


def script() -> str:
    (text,) = re.findall(r"^```bash\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return str(text)


@pytest.mark.parametrize("mark", [pytest.param(None, marks=live, id="live")])
def test_every_command_prints_what_the_page_shows(folder: Path, mark: None) -> None:
    shell = Shell(folder)
    (folder / "build").mkdir(exist_ok=True)
    (folder / "build" / "mine.sh").write_text(script())
    try:
        for step in steps():
            began = time.monotonic()
            shell.follow(step)
            print(f"{time.monotonic() - began:6.1f} s  {step.command}")
    finally:
        code = shell.leave()
    assert code == 0


def test_the_page_is_parsed_correctly() -> None:
    assert len(steps()) == len(re.findall(r"^    \$ ", PAGE, re.MULTILINE)) > 15
    assert PAGE.count("<!-- until: ") == sum(bool(step.expected) for step in steps())
    targets = re.findall(r"^    make (.+)$", PAGE, re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text()
    assert targets == ["demo", "demo-shell"]
    assert all(f"\n{target}: setup\n" in makefile for target in targets)

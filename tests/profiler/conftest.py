"""Run real training programs as a job on a compute node would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent / "programs"
PROFILER = Path(__file__).parents[2] / "profiler"


@dataclass(frozen=True)
class ProgramRun:
    code: int
    out: str
    err: str
    reports: list[dict[str, Any]]

    @property
    def losses(self) -> list[str]:
        return [line for line in self.out.splitlines() if line.startswith(("0x", "-0x"))]


@dataclass(frozen=True)
class Node:
    """A compute node: a spool folder and the environment set by the task prolog."""

    folder: Path

    @property
    def spool(self) -> Path:
        return self.folder / "spool"

    def env(self, **extra: str) -> dict[str, str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("HOPS_", "SLURM"))}
        return clean | {
            "HOPS_JOB": "1",
            "HOPS_REPORT_DIR": str(self.spool),
            "SLURM_JOB_ID": "17",
            "SLURMD_NODENAME": "n0",
            "PYTHONPATH": str(PROFILER / "site"),
            "OMP_NUM_THREADS": "1",
            **extra,
        }

    def run(self, *command: str | Path, profiler: bool = True, **extra: str) -> ProgramRun:
        """Run a Python command to its end; if ``profiler`` is False, as outside any hops job."""
        env = self.env(**extra)
        if not profiler:
            env = {k: v for k, v in env.items() if not k.startswith("HOPS_")}
        result = subprocess.run(
            [sys.executable, "-W", "ignore", *map(str, command)],
            cwd=self.folder,
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        return ProgramRun(result.returncode, result.stdout, result.stderr, self.reports())

    def program(
        self, name: str, *arguments: str, profiler: bool = True, **extra: str
    ) -> ProgramRun:
        """Run one of the programs in `programs`; it must exit with 0."""
        result = self.run(PROGRAMS / f"{name}.py", *arguments, profiler=profiler, **extra)
        assert result.code == 0, result.err
        return result

    def torchrun(self, ranks: int, name: str, *arguments: str, **extra: str) -> ProgramRun:
        launcher: Sequence[str] = ("-m", "torch.distributed.run", "--standalone")
        torchrun_command = (
            *launcher,
            f"--nproc-per-node={ranks}",
            PROGRAMS / f"{name}.py",
            *arguments,
        )
        result = self.run(*torchrun_command, **extra)
        assert result.code == 0, result.err
        return result

    def reports(self) -> list[dict[str, Any]]:
        """Return the reports by rank, and remove them for the next run."""
        paths = sorted(self.spool.glob("*.json"), key=lambda p: int(p.name.split(".")[3]))
        results = [json.loads(path.read_text()) for path in paths]
        for path in paths:
            path.unlink()
        return results


@pytest.fixture
def node(tmp_path: Path) -> Node:
    (tmp_path / "spool").mkdir()
    return Node(tmp_path)


@pytest.fixture(scope="module")
def shared_node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    """A node for programs whose results several tests of a module use."""
    folder = tmp_path_factory.mktemp("node")
    (folder / "spool").mkdir()
    return Node(folder)


@pytest.fixture(autouse=True)
def _gpu(request: pytest.FixtureRequest) -> None:
    """Skip tests marked ``gpu`` if there is no GPU, but fail if one was promised."""
    if request.node.get_closest_marker("gpu") is None:
        return
    if not pytest.importorskip("torch").cuda.is_available():
        report_absence = pytest.fail if "HOPS_GPU" in os.environ else pytest.skip
        report_absence("PyTorch finds no GPU: make test-gpu needs one")

"""Runs a copy of a program with clocks in it, under the plugin, and compares what both say."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.programs.catalogue import Program

INSIDE = Path(__file__).parent / "inside"
SITE = Path(__file__).parents[2] / "profiler" / "site"
LIMIT_SECONDS = 300


@dataclass(frozen=True)
class Result:
    """Seconds an iteration and samples a second, by the plugin and by hand; or what went wrong."""

    program: Program
    version: str = ""
    iteration: tuple[float, float] = (0.0, 0.0)
    speed: tuple[float, float] = (0.0, 0.0)
    failed: str = ""

    @property
    def errors(self) -> tuple[float, float]:
        """Relative, of the iteration and of the speed."""
        return tuple(  # type: ignore[return-value]
            plugin / hand - 1 if hand else float("inf")
            for plugin, hand in (self.iteration, self.speed)
        )


def run(program: Program, folder: Path, python: Path, scratch: Path) -> Result:
    """``folder`` holds the public repositories; ``scratch`` is emptied first."""
    shutil.rmtree(scratch, ignore_errors=True)
    (scratch / "reports").mkdir(parents=True)
    (scratch / "clocks").mkdir()
    script = _copied(program, folder, scratch)
    launcher = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={program.ranks}",
    ]
    try:
        done = subprocess.run(
            [
                *(python, "-W", "ignore"),
                *(launcher if program.ranks > 1 else ()),
                *(script.name, *program.args),
            ],
            cwd=script.parent,
            env=_environment(program, scratch),
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return Result(program, failed=f"not done after {LIMIT_SECONDS} s")
    hands = [json.loads(path.read_text()) for path in (scratch / "clocks").glob("*.json")]
    reports = [json.loads(path.read_text()) for path in (scratch / "reports").glob("*.json")]
    if not hands:
        return Result(program, failed="did not run: " + (done.stderr.strip() or "?")[-200:])
    version = _version(program, folder, python)
    hand = _mean([_by_hand(one) for one in hands])
    reports = [one for one in reports if one["timed"]["iterations"]]
    trained = [one for one in reports if one["kind"] == "training"]
    timed = [one["timed"] for one in trained or reports]  # a test at the end is none of it
    if len(timed) < len(hands):
        return Result(program, version, (0.0, hand[0]), (0.0, hand[1]), "not measured")
    plugin = _mean(
        [(one["seconds"] / one["iterations"], one["samples"] / one["seconds"]) for one in timed]
    )
    return Result(program, version, (plugin[0], hand[0]), (plugin[1], hand[1]))


def _by_hand(clock: dict[str, Any]) -> tuple[float, float]:
    intervals = clock["intervals"]
    seconds = sum(interval for interval, _ in intervals)
    return seconds / len(intervals), sum(samples for _, samples in intervals) / seconds


def _mean(figures: list[tuple[float, float]]) -> tuple[float, float]:
    """Mean iteration, and the speed of all ranks together."""
    return statistics.fmean(one[0] for one in figures), sum(one[1] for one in figures)


def _environment(program: Program, scratch: Path) -> dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HOPS_", "SLURM"))}
    own = dict(program.environment)
    path = [str(SITE), str(INSIDE), *own.pop("PYTHONPATH", "").split(":")]
    return clean | {
        "HOPS_JOB": "1",
        "HOPS_REPORT_DIR": str(scratch / "reports"),
        "SLURM_JOB_ID": "1",
        "SLURMD_NODENAME": "n0",
        "HAND_CLOCK": str(scratch / "clocks"),
        "HAND_CLOCK_STEPS": str(program.steps),
        "PYTHONPATH": ":".join(filter(None, path)),
        "OMP_NUM_THREADS": "1",
        "MPLBACKEND": "Agg",
        "HF_HUB_OFFLINE": "1",
        "WANDB_MODE": "disabled",
        **own,
    }


def _copied(program: Program, folder: Path, scratch: Path) -> Path:
    """The program's copy, with clocks; its whole repository where it has one."""
    if program.repo:
        shutil.copytree(folder / program.repo, scratch / "copy", symlinks=True)
        script = scratch / "copy" / program.script
    else:
        (scratch / "copy").mkdir()
        script = scratch / "copy" / program.script
        shutil.copy(INSIDE / program.script, script)  # the others are found beside it
    if script.suffix == ".ipynb":
        script = _exported(script)
    clocked = scratch / "copy" / program.clocked if program.clocked else script
    lines = clocked.read_text().splitlines()
    for line, clock in program.clocks:
        lines = _with_clock(lines, line, clock)
    text = "\n".join(lines) + "\n"
    clocked.write_text(text)
    text = script.read_text()
    for old, new in program.edits:
        if old not in text:
            raise ValueError(f"{program.name}: its script has no {old!r}")
        text = text.replace(old, new)
    script.write_text(_first(program.first, text))
    return script


def _exported(notebook: Path) -> Path:
    """The code of a notebook as a script beside it."""
    cells = json.loads(notebook.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    lines = "\n".join(code).splitlines()
    script = notebook.with_suffix(".py")
    script.write_text("\n".join(line for line in lines if not line.startswith(("%", "!"))) + "\n")
    return script


def _with_clock(lines: list[str], wanted: str, clock: str) -> list[str]:
    made, found = [], False
    for line in lines:
        made.append(line)
        if line.startswith(wanted) or (not wanted.startswith(" ") and wanted in line):
            found = True
            made.append(line[: len(line) - len(line.lstrip())] + f"import hand_clock; {clock}")
    if not found:
        raise ValueError(f"no line has {wanted!r}")
    return made


def _first(first: str, text: str) -> str:
    """``first`` behind the imports that must be ahead of all."""
    if not first:
        return text
    lines = text.splitlines()
    at = max(
        (n + 1 for n, line in enumerate(lines) if line.startswith("from __future__")), default=0
    )
    return "\n".join([*lines[:at], first, *lines[at:]]) + "\n"


def _version(program: Program, folder: Path, python: Path) -> str:
    if program.package:
        code = f"from importlib.metadata import version; print(version({program.package!r}))"
        told = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
        return f"{program.package} {told.stdout.strip()}"
    stamp = folder / program.repo / ".version"
    return stamp.read_text().strip() if stamp.exists() else "?"

"""Runs a copy of a program with inserted clocks under the plugin, and compares their figures."""

from __future__ import annotations

import dataclasses
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

GOOD = 0.05
"""Maximum relative error of a figure that counts as right."""

EQUAL_STEPS = 8
"""Iterations after which the parameters of two runs are compared."""


@dataclass(frozen=True)
class Result:
    """Seconds per iteration and samples per second, each by plugin and by hand, or a failure."""

    program: Program
    version: str = ""
    iteration: tuple[float, float] = (0.0, 0.0)
    speed: tuple[float, float] = (0.0, 0.0)
    failure: str = ""

    @property
    def errors(self) -> tuple[float, float]:
        """Relative errors of the iteration time and of the speed."""
        return tuple(  # type: ignore[return-value]
            plugin / hand - 1 if hand else float("inf")
            for plugin, hand in (self.iteration, self.speed)
        )

    @property
    def verdict(self) -> str:
        """Empty if both figures are right; "unknown" if the plugin only lacks those that are not,
        else "off".
        """
        figures = zip(self.errors, (self.iteration[0], self.speed[0]), strict=True)
        wrong = [figure for error, figure in figures if abs(error) > GOOD]
        if not wrong:
            return ""
        return "off" if any(wrong) else "unknown"


def run(program: Program, folder: Path, python: Path, scratch: Path) -> Result:
    """Run the program and compare the figures. ``folder`` holds the public repositories;
    ``scratch`` is emptied first.
    """
    failure = _execute(program, folder, python, scratch, plugin=True)
    if failure:
        return Result(program, failure=failure)
    hands = _read(scratch / "clocks")
    reports = _read(scratch / "reports")
    version = _version(program, folder, python)
    hand = _mean([_by_hand(report) for report in hands])
    reports = [report for report in reports if report["timed"]["iterations"]]
    training_reports = [report for report in reports if report["kind"] == "training"]
    timings = [
        report["timed"] for report in training_reports or reports
    ]  # leave out a final evaluation
    if len(timings) < len(hands):
        return Result(program, version, (0.0, hand[0]), (0.0, hand[1]), "not measured")
    plugin = _mean(
        [
            (report["seconds"] / report["iterations"], report["samples"] / report["seconds"])
            for report in timings
        ]
    )
    return Result(program, version, (plugin[0], hand[0]), (plugin[1], hand[1]))


def compare(program: Program, folder: Path, python: Path, scratch: Path) -> str:
    """Compare the parameters after EQUAL_STEPS iterations with and without the plugin bit for bit:
    "equal", "different", or why they cannot be compared.
    """
    seeded_program = dataclasses.replace(
        program,
        first=f"import parameters; {program.first}",
        steps=EQUAL_STEPS,
        environment={**program.environment, "HAND_CLOCK_SECONDS": "1000"},
    )
    digests = []
    for plugin in (False, False, True):
        failure = _execute(seeded_program, folder, python, scratch, plugin=plugin)
        if failure:
            return failure
        digests.append(sorted(clock["parameters"] for clock in _read(scratch / "clocks")))
        if not all(digests[0]):
            return "no optimizer of PyTorch's"
        if digests[0] != digests[-1]:
            return "different" if plugin else "two runs without the plugin differ"
    return "equal"


def _execute(program: Program, folder: Path, python: Path, scratch: Path, *, plugin: bool) -> str:
    """Run a copy of the program; return why it did not run, or an empty string."""
    shutil.rmtree(scratch, ignore_errors=True)
    (scratch / "reports").mkdir(parents=True)
    (scratch / "clocks").mkdir()
    script = _copy(program, folder, scratch)
    launcher = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={program.ranks}",
    ]
    try:
        process = subprocess.run(
            [
                *(python, "-W", "ignore"),
                *(launcher if program.ranks > 1 else ()),
                *(script.name, *program.args),
            ],
            cwd=script.parent,
            env=_environment(program, scratch, plugin=plugin),
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return f"not done after {LIMIT_SECONDS} s"
    if not any((scratch / "clocks").iterdir()):
        return "did not run: " + (process.stderr.strip() or "?")[-200:]
    return ""


def _read(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in folder.glob("*.json")]


def _by_hand(clock: dict[str, Any]) -> tuple[float, float]:
    intervals = clock["intervals"]
    seconds = sum(interval for interval, _ in intervals)
    return seconds / len(intervals), sum(samples for _, samples in intervals) / seconds


def _mean(figures: list[tuple[float, float]]) -> tuple[float, float]:
    """Mean iteration time, and the speed of all ranks together."""
    return statistics.fmean(figure[0] for figure in figures), sum(figure[1] for figure in figures)


def _environment(program: Program, scratch: Path, *, plugin: bool) -> dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HOPS_", "SLURM"))}
    variables = dict(program.environment)
    path = [str(SITE)] if plugin else []
    path += [str(INSIDE), *variables.pop("PYTHONPATH", "").split(":")]
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
        **variables,
    }


def _copy(program: Program, folder: Path, scratch: Path) -> Path:
    """Copy the program, with its repository if it has one, and insert the clocks."""
    if program.repo:
        shutil.copytree(folder / program.repo, scratch / "copy", symlinks=True)
        script = scratch / "copy" / program.script
    else:
        (scratch / "copy").mkdir()
        script = scratch / "copy" / program.script
        shutil.copy(INSIDE / program.script, script)  # the modules it imports are on PYTHONPATH
    if script.suffix == ".ipynb":
        script = _export(script)
    clock_file = scratch / "copy" / program.clocked if program.clocked else script
    lines = clock_file.read_text().splitlines()
    for line, clock in program.clocks:
        lines = _with_clock(lines, line, clock)
    text = "\n".join(lines) + "\n"
    clock_file.write_text(text)
    text = script.read_text()
    for old, new in program.edits:
        if old not in text:
            raise ValueError(f"{program.name}: its script has no {old!r}")
        text = text.replace(old, new)
    script.write_text(_first(program.first, text))
    return script


def _export(notebook: Path) -> Path:
    """Write the code of a notebook to a script beside it."""
    cells = json.loads(notebook.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    lines = "\n".join(code).splitlines()
    script = notebook.with_suffix(".py")
    script.write_text("\n".join(line for line in lines if not line.startswith(("%", "!"))) + "\n")
    return script


def _with_clock(lines: list[str], text: str, clock: str) -> list[str]:
    new_lines, has_line = [], False
    for line in lines:
        new_lines.append(line)
        if line.startswith(text) or (not text.startswith(" ") and text in line):
            has_line = True
            new_lines.append(line[: len(line) - len(line.lstrip())] + f"import hand_clock; {clock}")
    if not has_line:
        raise ValueError(f"no line has {text!r}")
    return new_lines


def _first(first: str, text: str) -> str:
    """Insert ``first`` after the ``__future__`` imports."""
    if not first:
        return text
    lines = text.splitlines()
    position = max(
        (n + 1 for n, line in enumerate(lines) if line.startswith("from __future__")), default=0
    )
    return "\n".join([*lines[:position], first, *lines[position:]]) + "\n"


def _version(program: Program, folder: Path, python: Path) -> str:
    if program.package:
        code = f"from importlib.metadata import version; print(version({program.package!r}))"
        process = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
        return f"{program.package} {process.stdout.strip()}"
    stamp = folder / program.repo / ".version"
    return stamp.read_text().strip() if stamp.exists() else "?"

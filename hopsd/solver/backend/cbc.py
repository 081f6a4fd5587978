"""CBC as a child process, with a hard time limit; its answers are not trusted.

PuLP ships the binary. The model is written from arrays, since one Python object per variable costs
seconds, and the answer is read from CBC's own files: PuLP reports a time-limited incumbent as
optimal, and leaves fractional values where no integer solution was found.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from time import monotonic

import numpy as np

from hopsd.model.arrays import Floats
from hopsd.solver.backend.integer_program import Answer, Model

# By default CBC ignores plans that are better by less than 1e-5, and calls its own plan optimal.
_INCREMENT = "1e-12"
# CBC 2.10.3 overruns its limit by 0.2 to 0.3 s, so it gets a lower limit and is killed at ours.
_TOLD_SHARE = 0.85
# Preprocessing and probing cost a third of the time on these small models, and improve nothing.
_FASTER = ("-preprocess", "off", "-probingCuts", "off", "-passCuts", "4")
_OPTIONS = ("-timeMode", "elapsed", *_FASTER, "-allow", "0", "-increment", _INCREMENT)
# CBC minimises, so its lower bound is the negative of our upper bound. It is printed with three
# digits after the point, and not at all once it meets the objective (eight digits).
_BOUND = re.compile(r"^Lower bound:\s+(-?[\d.e+-]+)", re.MULTILINE)
_BOUND_ROUNDING = 6e-4
_OPTIMUM = re.compile(r"^Result - Optimal solution found\n\nObjective value:\s+(\S+)", re.MULTILINE)
_OPTIMUM_ROUNDING = 1e-6
# CBC 2.10.3 does not report that it ended at the gap if it restarted its search.
_ENDED_AT_GAP = "Exiting as integer gap"


@cache
def binary() -> str:
    """Return the path of the CBC that PuLP ships."""
    package = find_spec("pulp")
    for folder in (package.submodule_search_locations if package else None) or ():
        # The same file as below, without the 0.2 s that importing pulp takes.
        bundled_path = Path(folder, "solverdir", "cbc", "linux", "i64", "cbc")
        if bundled_path.exists():
            return str(bundled_path)
    from pulp.apis.coin_api import pulp_cbc_path  # noqa: PLC0415

    return str(pulp_cbc_path)


def solve(
    model: Model, start: Floats | None, gap: float, seconds: float, nodes_max: int | None = None
) -> Answer:
    """Solve a model with CBC, killed after ``seconds``. Never raises for what CBC does.

    ``start`` is a feasible x. ``nodes_max`` is the number of nodes at which to stop branching;
    unlike a time limit it gives the same answer every time.
    """
    give_up = monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="hops-cbc-") as folder:
        problem, answer = Path(folder, "p.mps"), Path(folder, "p.sol")
        problem.write_text(to_mps(model))
        command = [
            binary(),
            str(problem),
            *_OPTIONS,
            "-ratio",
            repr(_tightened_gap(gap, model, start)),
        ]
        if start is not None:
            command += ["-mips", str(_write_start(Path(folder, "p.mst"), model, start))]
        if nodes_max is not None:
            command += ["-maxNodes", str(nodes_max)]
        remaining_seconds = give_up - monotonic()
        if remaining_seconds <= 0:
            return Answer()
        command += ["-sec", f"{max(0.05, remaining_seconds * _TOLD_SHARE):.3f}", "-branch"]
        command += ["-printingOptions", "all", "-solution", str(answer), "-quit"]
        log = _run(command, remaining_seconds)
        return (
            Answer()
            if log is None
            else Answer(_parse_solution(answer, model), read_bound(log, gap))
        )


def _tightened_gap(gap: float, model: Model, start: Floats | None) -> float:
    """Return a smaller relative gap, so that the bound rounded in the log still proves ``gap``."""
    value = 0.0 if start is None else float(model.objective @ start)
    return max(0.0, gap - 2 * _BOUND_ROUNDING / value) if value > 0.0 else gap


def _run(command: Sequence[str], seconds: float) -> str | None:
    """Run CBC and return its output; None if it was late or failed."""
    try:
        # Waiting on a pipe returns at once; subprocess's wait(timeout) sleeps up to 50 ms.
        process = subprocess.run(
            command,
            timeout=max(0.01, seconds),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    except (subprocess.TimeoutExpired, OSError):
        return None
    return process.stdout.decode(errors="replace") if process.returncode == 0 else None


def to_mps(model: Model) -> str:
    """Write free MPS, minimising. CBC 2.10 misreads short lines unless it says ``NAME r FREE``."""
    lines = ["NAME r FREE", "ROWS", " N OBJ"]
    lines += [f" L R{i}" for i in range(len(model.upper))]
    lines += ["COLUMNS", " M1 'MARKER' 'INTORG'"]
    start, row = model.start.tolist(), model.row.tolist()
    parts = [f"R{i} {_number(v)}" for i, v in zip(row, model.factor.tolist(), strict=True)]
    for j, value in enumerate((-model.objective).tolist()):
        first, last = start[j], start[j + 1]
        lines.append(f" X{j} OBJ {value!r}")
        lines += [f" X{j} {part}" for part in parts[first:last]]
    lines += [" M2 'MARKER' 'INTEND'", "RHS"]
    lines += [f" RHS R{i} {_number(value)}" for i, value in enumerate(model.upper.tolist())]
    lines.append("BOUNDS")
    lines += [f" UP BND X{j} {value:g}" for j, value in enumerate(model.bound.tolist())]
    lines.append("ENDATA\n")
    return "\n".join(lines)


def _number(value: float) -> str:
    """Format the number: whole numbers without a fraction, others with all digits."""
    return str(int(value)) if value == int(value) else repr(value)


def _write_start(path: Path, model: Model, start: Floats) -> Path:
    """Write a feasible start in the form that ``-mips`` reads (as PuLP writes it)."""
    objective = -float(model.objective @ start)
    lines = [f"Stopped on time - objective value {objective!r}"]
    lines += [f"{j:7d} X{j:<15d} {start[j]:g} 0" for j in np.flatnonzero(start).tolist()]
    path.write_text("\n".join(lines) + "\n")
    return path


def _parse_solution(path: Path, model: Model) -> Floats | None:
    """Read x if CBC reports a solution; CBC writes values even if it found none."""
    try:
        status, *lines = path.read_text().splitlines()
        if not status.startswith(("Optimal", "Stopped on")) or "no integer" in status:
            return None
        x = np.zeros(len(model.objective))
        for line in lines:
            _, name, value, *_ = line.replace("**", "").split()
            if name[0] == "X":
                x[int(name[1:])] = float(value)
    except (OSError, ValueError, IndexError):
        return None
    return x


def read_bound(log: str, gap: float) -> float:
    """Read the bound that CBC proved from the end of its log; infinity if there is none.

    ``gap`` is the relative gap that CBC was given, below 1.
    """
    bound, optimum = _BOUND.search(log), _OPTIMUM.search(log)
    try:
        if bound:
            return _BOUND_ROUNDING - float(bound[1])
        if not optimum:
            return np.inf
        cbc_bound = -float(optimum[1]) * (1 + _OPTIMUM_ROUNDING)
        return cbc_bound / (1 - gap) if _ENDED_AT_GAP in log and gap < 1 else cbc_bound
    except ValueError:
        return np.inf

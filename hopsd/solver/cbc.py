"""CBC as a child process: a hard limit, an honest status, nothing trusted.

PuLP brings the binary. The model is written from arrays, since one Python object a variable costs
seconds, and the answer is read from CBC's solution file: PuLP reports a time-limited incumbent as
optimal, and leaves fractional values where no integer solution was found.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import monotonic

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# By default CBC drops plans that are better by less than 1e-5, and calls the rest optimal.
_INCREMENT = "1e-12"
# CBC overruns its own limit by 0.2 to 0.3 s (2.10.3): it is told less, and killed at the limit.
_TOLD_SHARE = 0.85


@dataclass(frozen=True, slots=True)
class Model:
    """max ``objective @ x`` with ``A @ x <= upper`` and ``0 <= x <= bound``.

    ``A`` by column: rows ``row[start[j]:start[j+1]]`` with factors ``factor[...]``.
    """

    objective: Floats
    start: Ints
    row: Ints
    factor: Floats
    upper: Floats
    bound: Floats
    integer: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """``x`` None: nothing usable came back. ``proven``: CBC calls it optimal within the gap."""

    x: Floats | None
    prices: Floats | None
    proven: bool


@cache
def binary() -> str:
    """The path of the CBC that PuLP brings.

    PULP_CBC_CMD would tell it, too, and warns that it is deprecated (3.3).
    """
    from pulp.apis.coin_api import pulp_cbc_path  # noqa: PLC0415  # importing pulp costs 0.2 s

    return str(pulp_cbc_path)


def solve(model: Model, seconds: float, gap: float, start: Floats | None = None) -> Answer:
    """Ask CBC, and kill it after ``seconds``. Never raises for what CBC does."""
    give_up = monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="hops-cbc-") as folder:
        problem, answer = Path(folder, "p.mps"), Path(folder, "p.sol")
        problem.write_text(to_mps(model))
        command = [binary(), str(problem)]
        if start is not None:
            command += ["-mips", str(_write_start(Path(folder, "p.mst"), model, start))]
        left = give_up - monotonic()
        command += ["-timeMode", "elapsed", "-sec", f"{max(0.05, left * _TOLD_SHARE):.3f}"]
        command += _accept(gap) if model.integer else []
        command += ["-branch" if model.integer else "-initialSolve"]
        command += ["-printingOptions", "all", "-solution", str(answer), "-quit"]
        if not _run(command, left):
            return Answer(None, None, proven=False)
        return _read(answer, model)


def _accept(gap: float) -> list[str]:
    return ["-ratio", repr(gap), "-allow", "0", "-increment", _INCREMENT]


def _run(command: Sequence[str], seconds: float) -> bool:
    try:
        done = subprocess.run(
            command,
            timeout=max(0.01, seconds),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    except (subprocess.TimeoutExpired, OSError):
        return False
    return done.returncode == 0


def to_mps(model: Model) -> str:
    """Free MPS, minimising, as CBC 2.10 reads it (``NAME r FREE``: short lines are misread)."""
    columns = len(model.objective)
    lines = ["NAME r FREE", "ROWS", " N OBJ"]
    lines += [f" L R{i}" for i in range(len(model.upper))]
    lines.append("COLUMNS")
    if model.integer:
        lines.append(" M1 'MARKER' 'INTORG'")
    objective = (-model.objective).tolist()
    start, row, factor = model.start.tolist(), model.row.tolist(), model.factor.tolist()
    for j in range(columns):
        lines.append(f" X{j} OBJ {objective[j]!r}")
        lines += [f" X{j} R{row[k]} {factor[k]:g}" for k in range(start[j], start[j + 1])]
    if model.integer:
        lines.append(" M2 'MARKER' 'INTEND'")
    lines.append("RHS")
    lines += [f" RHS R{i} {value:.17g}" for i, value in enumerate(model.upper.tolist())]
    lines.append("BOUNDS")
    lines += [f" UP BND X{j} {value:g}" for j, value in enumerate(model.bound.tolist())]
    lines.append("ENDATA\n")
    return "\n".join(lines)


def _write_start(path: Path, model: Model, start: Floats) -> Path:
    """A feasible start in the form that ``-mips`` reads (as PuLP writes it)."""
    objective = -float(model.objective @ start)
    lines = [f"Stopped on time - objective value {objective!r}"]
    lines += [f"{j:7d} X{j:<15d} {start[j]:g} 0" for j in np.flatnonzero(start).tolist()]
    path.write_text("\n".join(lines) + "\n")
    return path


def _read(path: Path, model: Model) -> Answer:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return Answer(None, None, proven=False)
    status = lines[0].lower() if lines else ""
    if "infeasible" in status or "unbounded" in status or "integer sol" in status:
        return Answer(None, None, proven=False)
    rows, columns = len(model.upper), len(model.objective)
    x, prices = np.zeros(columns), np.zeros(rows)
    try:
        for line in lines[1:]:
            fields = line.replace("**", "").split()
            index = int(fields[1][1:])
            if fields[1][0] == "X":
                x[index] = float(fields[2])
            else:
                prices[index] = -float(fields[3])
    except (ValueError, IndexError):
        return Answer(None, None, proven=False)
    return Answer(x, prices, proven=status.startswith("optimal"))

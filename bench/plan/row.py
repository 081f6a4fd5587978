"""Measure each row in a fresh process, so that its peak memory is that of the row alone."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from bench.plan.instances import Case, Demands, Noise


def run_row(
    gpus: int,
    case: Case,
    noise: Noise,
    seed: int,
    time_limit: float,
    *,
    plain: bool,
    demands: Demands = Demands.NONE,
    jobs: int | None = None,
    gap: float | None = None,
) -> dict[str, Any]:
    """Measure one row in a fresh process."""
    command = [sys.executable, "-m", "bench.plan", "--row", "--gpus", str(gpus)]
    command += ["--case", case, "--noise", noise, "--seed", str(seed)]
    command += ["--demands", demands, "--time-limit", str(time_limit)]
    command += [] if plain else ["--no-plain"]
    command += [] if jobs is None else ["--jobs", str(jobs)]
    command += [] if gap is None else ["--gap", str(gap)]
    process = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    row: dict[str, Any] = json.loads(process.stdout)
    return row

"""Measure one row: hops' plan of an instance, and CBC and HiGHS on the same program as written."""

from __future__ import annotations

import resource
import time
from dataclasses import asdict, dataclass

import numpy as np

from bench.clock import cpu_seconds
from bench.plan.instances import Case, Demands, Noise, snapshot
from hopsd.core.placement.generate import generate
from hopsd.core.placement.program import Program, build
from hopsd.model.plan import PlanSettings, Snapshot
from hopsd.policies.hops.candidates import candidates
from hopsd.policies.hops.policy import plan
from hopsd.solver.backend import cbc, highs
from hopsd.solver.backend.checked_solver import Solve
from hopsd.solver.backend.integer_program import chosen_columns, model

# Writing more columns than this as MPS takes longer than any time limit here.
_MAX_PLAIN_COLUMNS = 700_000


@dataclass(frozen=True, slots=True)
class Row:
    """One row; ``plain`` has each solver's seconds and quality, its objective over our bound."""

    gpus: int
    case: str
    noise: str
    demands: str
    seed: int
    jobs: int
    window: int
    columns: int
    seconds: dict[str, float]
    cpu_seconds: float
    objective: float
    bound: float
    gap: float
    status: str
    idle_left: int
    peak_gib: float
    plain: dict[str, dict[str, float]]


def measure(
    gpus: int,
    case: Case,
    noise: Noise,
    seed: int,
    *,
    demands: Demands,
    jobs: int | None,
    gap: float,
    time_limit: float,
    plain: bool,
) -> dict[str, object]:
    """Measure a row and return it as JSON values."""
    instance = snapshot(gpus, case, noise, seed, jobs, demands)
    settings = PlanSettings(gap=gap, time_limit_seconds=time_limit)
    before = cpu_seconds()
    result = plan(instance, settings)
    cpu = cpu_seconds() - before
    # The peak is the larger of this process and its largest child.
    processes = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    peak = max(resource.getrusage(process).ru_maxrss for process in processes) / 2**20
    alone = {}
    if plain and result.configurations <= _MAX_PLAIN_COLUMNS:
        alone = _plain(instance, settings, result.upper_bound)
    row = Row(
        gpus,
        case.value,
        noise.value,
        demands.value,
        seed,
        len(instance.jobs),
        len(result.window),
        result.configurations,
        dict(result.seconds),
        cpu,
        result.objective,
        result.upper_bound,
        result.gap,
        result.status.value,
        result.fragments,
        peak,
        alone,
    )
    return asdict(row)


def _plain(instance: Snapshot, settings: PlanSettings, bound: float) -> dict[str, dict[str, float]]:
    """Solve eq. 11 to 13 as written, with the same limit and gap: seconds, quality by our bound."""
    instance_program = program(instance, settings)
    columns = np.arange(len(instance_program.value))
    solvers: dict[str, Solve] = {"cbc": cbc.solve, "highs": highs.solve}
    results = {}
    for name, solve in solvers.items():
        began = time.monotonic()
        whole = model(instance_program, columns, instance_program.capacity, as_written=True)
        answer = solve(whole, None, settings.gap, settings.time_limit_seconds, None)
        selection = chosen_columns(columns, answer)
        value = 0.0 if selection is None else float(instance_program.value[selection].sum())
        results[name] = {
            "seconds": time.monotonic() - began,
            "quality": instance_program.unscale(value) / bound,
        }
    return results


def program(instance: Snapshot, settings: PlanSettings) -> Program:
    """Build the program of eq. 11 to 13 that a plan under ``hops`` solves."""
    inputs = candidates(instance, settings)
    columns = generate(
        inputs.jobs,
        inputs.available,
        inputs.sensitivity,
        sigma=settings.sigma,
        keep_present=instance.round.first,
        remaining_limits=inputs.remaining_limits,
    )
    priorities = [inputs.priority[job.id] for job in inputs.jobs]
    return build(columns, priorities, settings.lam, np.ones(len(inputs.jobs)))

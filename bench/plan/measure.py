"""One row: plan an instance, and hand the same program as written to CBC and to HiGHS."""

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
from hopsd.solver.backend.checked import Solve
from hopsd.solver.backend.model import chosen_columns, model

# Writing more columns than this as MPS takes longer than any time limit here.
_PLAIN_COLUMNS_MAX = 700_000


@dataclass(frozen=True, slots=True)
class Row:
    """``quality``: objective over the proven bound; ``plain``: what each solver did alone."""

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
    """The row as JSON values."""
    instance = snapshot(gpus, case, noise, seed, jobs, demands)
    settings = PlanSettings(gap=gap, time_limit_seconds=time_limit)
    before = cpu_seconds()
    made = plan(instance, settings)
    cpu = cpu_seconds() - before
    # Of this process, or of the largest child.
    who = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    peak = max(resource.getrusage(one).ru_maxrss for one in who) / 2**20
    alone = {}
    if plain and made.configurations <= _PLAIN_COLUMNS_MAX:
        alone = _plain(instance, settings, made.upper_bound)
    row = Row(
        gpus,
        case.value,
        noise.value,
        demands.value,
        seed,
        len(instance.jobs),
        len(made.window),
        made.configurations,
        dict(made.seconds),
        cpu,
        made.objective,
        made.upper_bound,
        made.gap,
        made.status.value,
        made.fragments,
        peak,
        alone,
    )
    return asdict(row)


def _plain(instance: Snapshot, settings: PlanSettings, bound: float) -> dict[str, dict[str, float]]:
    """Seconds and quality (against our bound) of eq. 11 to 13 as written, same limit and gap."""
    asked = program(instance, settings)
    columns = np.arange(len(asked.value))
    solvers: dict[str, Solve] = {"cbc": cbc.solve, "highs": highs.solve}
    results = {}
    for name, solve in solvers.items():
        began = time.monotonic()
        whole = model(asked, columns, asked.capacity, as_written=True)
        answer = solve(whole, None, settings.gap, settings.time_limit_seconds, None)
        chosen = chosen_columns(columns, answer)
        value = 0.0 if chosen is None else float(asked.value[chosen].sum())
        results[name] = {
            "seconds": time.monotonic() - began,
            "quality": asked.unscaled(value) / bound,
        }
    return results


def program(instance: Snapshot, settings: PlanSettings) -> Program:
    """The program of eq. 11 to 13 that a plan under ``hops`` solves."""
    chosen = candidates(instance, settings)
    columns = generate(
        chosen.jobs,
        chosen.available,
        chosen.sensitivity,
        sigma=settings.sigma,
        keep_present=instance.round.first,
        allowances=chosen.allowances,
    )
    priorities = [chosen.priority[job.id] for job in chosen.jobs]
    return build(columns, priorities, settings.lam, np.ones(len(chosen.jobs)))

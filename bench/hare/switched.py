"""The figures' jobs where GPUs switch between jobs, and where each change is a restart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from hops_rivals.hare import BASELINES

from bench.hare.experiments import FIGURES, SEEDS, TESTBED
from bench.hare.runs import INTERVALS
from bench.hare.workload import Scenario
from bench.kept import Found, digest, kept
from hopsd.policies.hare.check import violations
from hopsd.policies.hare.relaxation import relax
from hopsd.policies.hare.schedulers import SCHEDULERS
from hopsd.policies.hare.switching import delayed, lent_to_nobody, switches
from hopsd.policies.hare.tasks import Instance, Schedule

SCENARIOS = {"15 GPUs, 40 jobs": Scenario(jobs=40, gpus=TESTBED)}


@dataclass(frozen=True, slots=True)
class Change:
    """``seconds``: how long a GPU takes to go from one job to another. ``lends``: also while a job
    synchronises, and so at every mini-batch of a task; else only between tasks.
    """

    label: str
    seconds: float
    lends: bool


CHANGES = (
    Change("switching in 0 ms, the paper's model", 0.0, lends=True),
    Change("switching in 10 ms, kept", 0.010, lends=True),
    Change("switching in 80 ms, standby", 0.080, lends=True),
    Change("restarting in 0 s", 0.0, lends=False),
    Change("restarting in 3.2 s, `hops-run`", 3.2, lends=False),
    Change("restarting in 7.2 s, on a busy machine", 7.2, lends=False),
    Change("restarting in 30 s, assumed", 30.0, lends=False),
)
"""10 and 80 ms, 3.2 and 7.2 s: as docs/switching.md measures them."""

COMPARED = (CHANGES[1], CHANGES[4])
"""Of figures 14 to 19: with switching, and without."""

COMPARED_SEEDS = SEEDS[:1]

QUARTERS = tuple(
    (
        f"{figure.number}: {label} {figure.label}".rstrip(),
        replace(
            scenario,
            jobs=scenario.jobs // 4,
            gpus={kind: count // 4 for kind, count in scenario.gpus.items()},
        ),
    )
    for figure in FIGURES
    if figure.number != "12"
    for label, scenario in figure.cases
)
"""Figures 14 to 19 with a quarter of their jobs and GPUs."""


def weighted(
    change: Change, scenario: Scenario, folder: Path, seeds: Sequence[int] = SEEDS
) -> list[Found]:
    """Of each seed: the sum of w_n (C_n - a_n) in thousands of hours, and switches a task, both by
    scheme.
    """
    drawn = [replace(scenario, seed=seed) for seed in seeds]
    runs = [
        kept(
            folder / f"switched-{digest((asdict(own), change.lends))}.json",
            partial(_run, own, lends=change.lends),
        )
        for own in drawn
    ]
    return [run[str(change.seconds)] for run in runs]


def _run(scenario: Scenario, *, lends: bool) -> Found:
    """By the seconds of each such change. Schedules are checked.

    Raises:
        AssertionError: a schedule breaks a constraint.
    """
    instance = scenario.instance()
    seen = instance if lends else lent_to_nobody(instance)
    relaxed = relax(seen, INTERVALS)
    made: dict[str, tuple[Instance, Schedule]] = {
        name: (seen, scheduler(seen, relaxed)) for name, scheduler in SCHEDULERS.items()
    }
    for name, scheme in BASELINES.items():
        made[name] = instance, scheme(instance, relaxed.lower_bound)
    found: Found = {}
    for seconds in (change.seconds for change in CHANGES if change.lends == lends):
        once = np.full(instance.jobs, seconds)
        each = once * scenario.batches() if lends else once
        own: Found = {"weighted": {}, "switches": {}}
        for name, (of, schedule) in made.items():
            later = delayed(of, schedule, each if name in SCHEDULERS else once)
            assert not violations(of, later), name
            spent = of.weight @ (later.completion(of) - of.arrival)
            own["weighted"][name] = float(spent) / 3.6e6
            own["switches"][name] = float(switches(of, later).mean())
        found[str(seconds)] = own
    return found

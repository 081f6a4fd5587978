"""The jobs of the paper's figures if GPUs switch between jobs, and if each change is a restart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from hops_rivals.hare import BASELINES

from bench.hare.experiments import FIGURES, SEEDS, TESTBED_GPUS
from bench.hare.runs import INTERVALS
from bench.hare.workload import Scenario
from bench.saved_runs import Document, digest, load_or_run
from hopsd.policies.hare.relaxation import relax
from hopsd.policies.hare.schedule_check import violations
from hopsd.policies.hare.schedulers import SCHEDULERS
from hopsd.policies.hare.switching import lent_to_nobody, switches, with_switches
from hopsd.policies.hare.tasks import Instance, Schedule

SCENARIOS = {"15 GPUs, 40 jobs": Scenario(jobs=40, gpus=TESTBED_GPUS)}


@dataclass(frozen=True, slots=True)
class Change:
    """``seconds`` is how long a GPU takes to go from one job to another. If it ``lends``, GPUs also
    change hands while a job synchronises, so at every mini-batch of a task; else only between
    tasks.
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
"""10 and 80 ms, 3.2 and 7.2 s are measured in docs/switching.md."""

COMPARISON = (CHANGES[1], CHANGES[4])
"""Changes shown for figures 14 to 19: with switching, and without."""

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


def weighted_runs(
    change: Change, scenario: Scenario, folder: Path, seeds: Sequence[int] = SEEDS
) -> list[Document]:
    """For each seed, by scheme: the sum of w_n (C_n - a_n) in thousands of hours, and switches per
    task.
    """
    scenarios = [replace(scenario, seed=seed) for seed in seeds]
    runs = [
        load_or_run(
            folder / f"switched-{digest((asdict(seed_scenario), change.lends))}.json",
            partial(_run, seed_scenario, lends=change.lends),
        )
        for seed_scenario in scenarios
    ]
    return [run[str(change.seconds)] for run in runs]


def _run(scenario: Scenario, *, lends: bool) -> Document:
    """Results by change seconds, for all changes with this ``lends``; checks every schedule.

    Raises:
        AssertionError: a schedule breaks a constraint.
    """
    instance = scenario.instance()
    planning_instance = instance if lends else lent_to_nobody(instance)
    relaxation = relax(planning_instance, INTERVALS)
    schedules: dict[str, tuple[Instance, Schedule]] = {
        name: (planning_instance, scheduler(planning_instance, relaxation))
        for name, scheduler in SCHEDULERS.items()
    }
    for name, scheme in BASELINES.items():
        schedules[name] = instance, scheme(instance, relaxation.lower_bound)
    results: Document = {}
    for seconds in (change.seconds for change in CHANGES if change.lends == lends):
        switch_per_job = np.full(instance.jobs, seconds)
        switch_seconds = switch_per_job * scenario.batches() if lends else switch_per_job
        result: Document = {"weighted": {}, "switches": {}}
        for name, (case, schedule) in schedules.items():
            later = with_switches(
                case, schedule, switch_seconds if name in SCHEDULERS else switch_per_job
            )
            assert not violations(case, later), name
            weighted_time = case.weight @ (later.completion(case) - case.arrival)
            result["weighted"][name] = float(weighted_time) / 3.6e6
            result["switches"][name] = float(switches(case, later).mean())
        results[str(seconds)] = result
    return results

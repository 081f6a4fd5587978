"""Runs every scheme over a scenario once and saves the outcome as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from hops_rivals.hare import BASELINES

from bench.hare.workload import Scenario
from bench.saved_runs import digest, load_or_run
from hopsd.policies.hare.relaxation import relax
from hopsd.policies.hare.schedule_check import violations
from hopsd.policies.hare.schedulers import SCHEDULERS
from hopsd.policies.hare.tasks import Instance, Schedule

INTERVALS = 30

SCHEMES = (*SCHEDULERS, *BASELINES)


@dataclass(frozen=True, slots=True)
class Outcome:
    """``completion`` has C_n - a_n by scheme in seconds, in the order of jobs; ``objective`` is the
    sum of w_n C_n by scheme, and ``bound`` that of the relaxation.
    """

    weight: list[float]
    completion: dict[str, list[float]]
    objective: dict[str, float]
    bound: float
    alpha: float

    def weighted_time(self, scheme: str) -> float:
        """Sum of w_n (C_n - a_n), in thousands of hours."""
        times = self.completion[scheme]
        return sum(w * c for w, c in zip(self.weight, times, strict=True)) / 3.6e6


def outcome(scenario: Scenario, folder: Path) -> Outcome:
    """Outcome of ``scenario``, loaded if an earlier run saved it."""
    path = folder / f"{digest(asdict(scenario))}.json"
    return Outcome(**load_or_run(path, lambda: asdict(run(scenario.instance()))))


def run(instance: Instance) -> Outcome:
    """Run all schemes over one instance and check every schedule.

    Raises:
        AssertionError: a schedule breaks a constraint.
    """
    relaxation = relax(instance, INTERVALS)
    schedules: dict[str, Schedule] = {
        name: scheduler(instance, relaxation) for name, scheduler in SCHEDULERS.items()
    }
    schedules |= {
        name: scheme(instance, relaxation.lower_bound) for name, scheme in BASELINES.items()
    }
    for name, schedule in schedules.items():
        assert not violations(instance, schedule), name
    return Outcome(
        instance.weight.tolist(),
        {
            name: (s.completion(instance) - instance.arrival).tolist()
            for name, s in schedules.items()
        },
        {name: s.weighted_completion(instance) for name, s in schedules.items()},
        relaxation.lower_bound,
        instance.alpha,
    )

"""The paper's experiments where GPUs alternate between jobs, and where each change is a restart."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from bench.hare.experiments import SEEDS, TESTBED
from bench.hare.runs import INTERVALS
from bench.hare.workload import Scenario
from hopsd.model.arrays import Floats
from hopsd.model.plan import PlanSettings
from hopsd.policies.hare.baselines import BASELINES
from hopsd.policies.hare.check import violations
from hopsd.policies.hare.relaxation import relax
from hopsd.policies.hare.schedulers import SCHEDULERS
from hopsd.policies.hare.switching import delayed, lent_to_nobody, switches
from hopsd.policies.hare.tasks import Instance
from hopsd.policies.registry import get
from hopsd.sim.cluster import ClusterSettings
from hopsd.sim.engine import PLAN_SECONDS_MAX, SimulationSettings
from hopsd.sim.presets import preset
from hopsd.sim.study import play

SCENARIOS = {
    "15 GPUs, 40 jobs": Scenario(jobs=40, gpus=TESTBED),
    "160 GPUs, 200 jobs": Scenario(),
}


@dataclass(frozen=True, slots=True)
class Change:
    """``seconds``: how long a GPU takes to go from one job to another. ``lends``: also while a job
    synchronises, and so at every mini-batch of a task; else only between tasks.
    """

    label: str
    seconds: float
    lends: bool


CHANGES = (
    Change("alternating, 0 ms (the paper's model)", 0.0, lends=True),
    Change("alternating, 10 ms (kept)", 0.010, lends=True),
    Change("alternating, 80 ms (standby)", 0.080, lends=True),
    Change("not alternating, 0 s", 0.0, lends=False),
    Change("not alternating, 7.2 s (hops' launcher)", 7.2, lends=False),
    Change("not alternating, 30 s (assumed)", 30.0, lends=False),
)
"""10 and 80 ms, 7.2 s: as docs/switching.md measures them."""

ROUNDS = ((360.0, 30.0), (360.0, 7.2), (360.0, 0.010), (60.0, 30.0), (60.0, 7.2), (60.0, 0.010))
"""Lengths of a scheduling round, and what a restart takes, in the round-based simulator."""

ROUNDS_SEEDS = (0, 1, 2)

Found = dict[str, Any]


def weighted(change: Change, scenario: Scenario, folder: Path) -> list[Found]:
    """Of each seed: the sum of w_n (C_n - a_n) in thousands of hours, and switches a task, both by
    scheme.
    """
    drawn = [replace(scenario, seed=seed) for seed in SEEDS]
    return [
        _kept(folder, (asdict(own), change.seconds, change.lends), partial(_run, change, own))
        for own in drawn
    ]


def rounds(folder: Path) -> Iterator[tuple[str, float, float, list[Found]]]:
    """By policy, length of a round and restart: the figures of each seed."""
    for policy in SCHEDULERS:
        for length, restart in ROUNDS:
            cases = [(policy, length, restart, seed) for seed in ROUNDS_SEEDS]
            runs = [_kept(folder, case, partial(_play, *case)) for case in cases]
            yield policy, length, restart, runs


def _run(change: Change, scenario: Scenario) -> Found:
    """Every schedule is checked; the baselines never alternate.

    Raises:
        AssertionError: a schedule breaks a constraint.
    """
    instance = scenario.instance()
    once = np.full(instance.jobs, change.seconds)
    each = once * scenario.batches() if change.lends else once
    seen = instance if change.lends else lent_to_nobody(instance)
    relaxed = relax(seen, INTERVALS)
    found: Found = {"weighted": {}, "switches": {}}
    for name, scheduler in SCHEDULERS.items():
        _note(found, name, seen, scheduler(seen, relaxed), each)
    for name, scheme in BASELINES.items():
        _note(found, name, instance, scheme(instance, relaxed.lower_bound), once)
    return found


def _note(found: Found, name: str, instance: Instance, made: Any, seconds: Floats) -> None:
    later = delayed(instance, made, seconds)
    assert not violations(instance, later), name
    spent = instance.weight @ (later.completion(instance) - instance.arrival)
    found["weighted"][name] = float(spent) / 3.6e6
    found["switches"][name] = float(switches(instance, later).mean())


def _play(policy: str, length: float, restart: float, seed: int) -> Found:
    made = preset("paper-64")
    cluster, workload = made.cluster(), made.workload(seed, jobs=None, rate_per_hour=None)
    settings = SimulationSettings(
        length,
        plan=PlanSettings(policy=policy, seed=seed, effort=0, time_limit_seconds=PLAN_SECONDS_MAX),
        cluster=ClusterSettings(restart_seconds=restart),
    )
    return asdict(play(policy, get(policy), cluster, workload, settings).summary)


def _kept(folder: Path, key: object, make: Callable[[], Found]) -> Found:
    """Of an earlier run where there is one."""
    name = sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    path = folder / f"switched-{name}.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(make()))
        temporary.rename(path)
    found: Found = json.loads(path.read_text())
    return found

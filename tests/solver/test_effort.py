"""Counted effort, and running jobs as the starting solution."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from time import sleep
from typing import Any

import numpy as np
import pytest
from instances import snapshot
from programs import program_of

from hopsd.model.arrays import Floats
from hopsd.model.plan import PlanSettings, RoundInfo, Snapshot
from hopsd.policies.hops.policy import plan
from hopsd.solver import large
from hopsd.solver.backend.integer_program import Answer, Model
from hopsd.solver.search.cutting_patterns import class_program
from hopsd.solver.solve import solve


class Standstill:
    """A solver that takes ``seconds``, finds no better solution and proves nothing."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.calls = 0

    def __call__(
        self,
        model: Model,
        start: Floats | None,
        gap: float,
        seconds_left: float,
        nodes: int | None = None,
    ) -> Answer:
        self.calls += 1
        sleep(self.seconds)
        return Answer(np.zeros(len(model.objective)) if start is None else start, np.inf)


@pytest.mark.long
@pytest.mark.slow
def test_counted_effort_does_not_depend_on_the_clock() -> None:
    """A gap of 0 is never proven, so only the effort ends the search."""
    program = program_of(snapshot(3, servers=24, jobs=60))
    fast, slow, further_solver = Standstill(), Standstill(0.02), Standstill()
    first = solve(program, 0.0, 600.0, turns=0, solver=fast)
    second = solve(program, 0.0, 600.0, turns=0, solver=slow)
    assert np.array_equal(first.choice, second.choice)
    assert first.bound == second.bound
    assert fast.calls == slow.calls
    further = solve(program, 0.0, 600.0, turns=2, solver=further_solver)
    assert further_solver.calls > fast.calls
    assert further.bound <= first.bound


def next_round(instance: Snapshot) -> Snapshot:
    """Return the next round: jobs run where a poor plan put them, and moves cost something."""
    first_plan = plan(instance, PlanSettings(gap=0.3, effort=0))
    gpus_in_use: Counter[str] = Counter()
    for allocation in first_plan.placements.values():
        gpus_in_use.update(dict(allocation))
    return replace(
        instance,
        nodes=tuple(replace(n, idle=n.idle - gpus_in_use[n.name]) for n in instance.nodes),
        jobs=tuple(
            replace(j, running=first_plan.placements[j.id], restart_seconds=180.0)
            if j.id in first_plan.placements
            else j
            for j in instance.jobs
        ),
        round=RoundInfo(first=True, seconds=1800.0),
    )


@pytest.mark.slow
def test_a_class_program_is_solved_only_if_few_jobs_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its second of CPU was half of the time of a further plan, which ended with the same gap."""
    solver_calls = []

    def count_calls(*arguments: Any) -> Any:
        solver_calls.append(arguments)
        return class_program(*arguments)

    monkeypatch.setattr(large, "class_program", count_calls)
    instance = snapshot(0, servers=64, jobs=90, factors=False)
    idle = tuple(replace(node, gpus=8, idle=8) for node in instance.nodes)
    even = tuple(
        replace(job, reqs=tuple(r for r in (1, 2, 4, 8) if r <= max(job.reqs)))
        for job in instance.jobs
    )
    cold = replace(instance, nodes=idle, jobs=even)
    plan(cold, PlanSettings(gap=0.0, effort=0))
    assert solver_calls
    warm = next_round(cold)
    solver_calls.clear()
    plan(warm, PlanSettings(gap=0.0, effort=0))
    assert not solver_calls


@pytest.mark.parametrize("seed", range(4))
def test_a_plan_is_no_worse_than_changing_nothing(seed: int) -> None:
    instance = next_round(snapshot(seed, servers=8, jobs=20))
    new_plan = plan(instance, PlanSettings(gap=1.0, effort=0))
    stay = program_of(instance)
    stays = stay.configurations.present
    assert stay.feasible(stays)
    assert new_plan.objective >= stay.unscale(stay.scaled_objective(stays)) * (1 - 1e-9)

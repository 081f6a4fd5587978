"""Effort that is counted, and what runs as a start."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from time import sleep

import numpy as np
import pytest
from instances import snapshot
from programs import program_of

from hopsd.model.arrays import Floats
from hopsd.model.plan import PlanSettings, RoundInfo, Snapshot
from hopsd.policies.hops.policy import plan
from hopsd.solver.backend.model import Answer, Model
from hopsd.solver.solve import solve


class Standstill:
    """A solver that finds nothing better than it was given and proves nothing, ``seconds`` late."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.calls = 0

    def __call__(
        self, model: Model, start: Floats | None, gap: float, left: float, nodes: int | None = None
    ) -> Answer:
        self.calls += 1
        sleep(self.seconds)
        return Answer(np.zeros(len(model.objective)) if start is None else start, np.inf)


def test_counted_effort_does_not_depend_on_the_clock() -> None:
    """The gap of 0 is never proven: effort alone ends the search."""
    program = program_of(snapshot(3, servers=24, jobs=60))
    fast, slow, more = Standstill(), Standstill(0.02), Standstill()
    first = solve(program, 0.0, 600.0, turns=0, solver=fast)
    second = solve(program, 0.0, 600.0, turns=0, solver=slow)
    assert np.array_equal(first.choice, second.choice)
    assert first.bound == second.bound
    assert fast.calls == slow.calls
    further = solve(program, 0.0, 600.0, turns=2, solver=more)
    assert more.calls > fast.calls
    assert further.bound <= first.bound


def started(asked: Snapshot) -> Snapshot:
    """The next round: the jobs run where a poor plan put them, and lose something by a move."""
    made = plan(asked, PlanSettings(gap=0.3, effort=0))
    held: Counter[str] = Counter()
    for allocation in made.placements.values():
        held.update(dict(allocation))
    return replace(
        asked,
        nodes=tuple(replace(n, idle=n.idle - held[n.name]) for n in asked.nodes),
        jobs=tuple(
            replace(j, running=made.placements[j.id], restart_seconds=180.0)
            if j.id in made.placements
            else j
            for j in asked.jobs
        ),
        round=RoundInfo(first=True, seconds=1800.0),
    )


@pytest.mark.parametrize("seed", range(4))
def test_a_plan_is_no_worse_than_leaving_everything_as_it_runs(seed: int) -> None:
    asked = started(snapshot(seed, servers=8, jobs=20))
    made = plan(asked, PlanSettings(gap=1.0, effort=0))
    stay = program_of(asked)
    stays = stay.configurations.present
    assert stay.feasible(stays)
    assert made.objective >= stay.unscaled(stay.scaled_objective(stays)) * (1 - 1e-9)

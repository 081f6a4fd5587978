"""Programs of generated snapshots, and checks that every plan must pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Self, TypeVar

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csc_array

from hopsd.core.placement.generate import generate
from hopsd.core.placement.program import Program, build
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.policies.hops.candidates import candidates
from hopsd.solver.backend.integer_program import model

T = TypeVar("T")


def program_of(snapshot: Snapshot, lam: float = 1.0) -> Program:
    queue = candidates(snapshot, PlanSettings(lam=lam))
    columns = generate(
        queue.jobs,
        queue.available,
        queue.sensitivity,
        sigma=1.4,
        keep_present=snapshot.round.first,
        remaining_limits=queue.remaining_limits,
    )
    priorities = [queue.priority[job.id] for job in queue.jobs]
    return build(columns, priorities, lam, np.ones(len(queue.jobs)))


def assert_holds(snapshot: Snapshot, plan: Plan) -> None:
    """Check that no server is over-allocated and that every job gets an accepted count."""
    free = {node.name: node.idle for node in snapshot.nodes}
    jobs = {job.id: job for job in snapshot.jobs}
    if snapshot.round.first:
        for job in snapshot.jobs:
            for name, gpus in job.running if job.preemptible else ():
                free[name] += gpus
    gpus_in_use: Counter[str] = Counter()
    for job_id, allocation in plan.placements.items():
        assert allocation.gpus in jobs[job_id].reqs
        gpus_in_use.update(dict(allocation))
    assert all(gpus_in_use[name] <= gpus for name, gpus in free.items())
    assert set(gpus_in_use) <= set(free)
    assert plan.objective <= plan.upper_bound


def in_time(run: Callable[[], T], seconds: float) -> T:
    """Return the result of ``run`` within ``seconds``, in three tries as the CPU may be busy."""
    took = []
    for _ in range(3):
        began = monotonic()
        result = run()
        took.append(monotonic() - began)
        if took[-1] <= seconds:
            return result
    pytest.fail(f"took {took} s, not {seconds} s")


def usable(program: Program, choice: np.ndarray) -> list[int]:
    """Return the jobs without a column although one would fit on idle GPUs."""
    free_capacity = program.capacity - program.usage(choice)
    columns = program.configurations
    fits = program.fits(free_capacity)
    return [
        job
        for job in np.flatnonzero(choice < 0).tolist()
        if fits[columns.start[job] : columns.start[job + 1]].any()
    ]


def best_value(program: Program) -> float:
    """Return the optimum that another solver finds for the program as written."""
    columns = np.arange(len(program.value))
    whole = model(program, columns, program.capacity, as_written=True)
    rows = csc_array((whole.factor, whole.row, whole.start), shape=(len(whole.upper), len(columns)))
    answer = milp(
        -whole.objective,
        constraints=LinearConstraint(rows, -np.inf, whole.upper),
        integrality=np.ones(len(columns)),
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 1e-6},
    )
    assert answer.status == 0
    return -float(answer.fun) * float(program.value.max())


class AnsweringChild:
    """A child process that is killed after it has sent some records."""

    def __init__(self, *records: bytes) -> None:
        self.records = records

    def __call__(self, _module: str) -> Self:
        return self

    def ask(self, question: object) -> None:
        self.question = question

    def answers(self, _give_up: float) -> Iterator[bytes]:
        yield from self.records

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        pass

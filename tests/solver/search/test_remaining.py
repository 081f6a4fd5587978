"""What a choice leaves open is a program whose plans add to the choice."""

from __future__ import annotations

import numpy as np
import pytest
from instances import snapshot, with_rules
from programs import program_of

from hopsd.core.placement.program import Program
from hopsd.model.arrays import Ints
from hopsd.solver.search.greedy import greedy_by_weight
from hopsd.solver.search.remaining import remaining


def half_of_a_plan(seed: int) -> tuple[Program, Ints]:
    program = program_of(with_rules(snapshot(seed, servers=8, jobs=20), seed))
    choice = greedy_by_weight(program)
    return program, np.where(np.random.default_rng(seed).random(len(choice)) < 0.5, choice, -1)


@pytest.mark.parametrize("seed", range(10))
def test_a_plan_of_the_rest_adds_to_the_choice(seed: int) -> None:
    program, choice = half_of_a_plan(seed)
    rest, numbers = remaining(program, choice)
    further = greedy_by_weight(rest)
    assert rest.feasible(further)
    both = np.where(further >= 0, np.append(numbers, -1)[further], choice)
    assert program.feasible(both)
    value = program.scaled_objective(choice) + rest.scaled_objective(further)
    assert program.scaled_objective(both) == pytest.approx(value)
    assert program.gpus(both) == program.gpus(choice) + rest.gpus(further)


@pytest.mark.parametrize("seed", range(10))
def test_the_rest_has_the_columns_that_fit_beside_the_choice(seed: int) -> None:
    program, choice = half_of_a_plan(seed)
    rest, numbers = remaining(program, choice)
    fitting = []
    for column in range(len(program.value)):
        job = int(program.configurations.jobs_of(np.array([column]))[0])
        more = choice.copy()
        more[job] = column
        if choice[job] < 0 and program.feasible(more):
            fitting.append(column)
    assert numbers.tolist() == fitting
    assert rest.value.tolist() == program.value[fitting].tolist()
    assert rest.configurations.jobs_of(np.arange(len(fitting))).tolist() == (
        program.configurations.jobs_of(np.array(fitting, dtype=np.int64)).tolist()
    )


def test_nothing_remains_if_every_job_has_a_column() -> None:
    program, _ = half_of_a_plan(0)
    choice = program.configurations.start[:-1].copy()
    choice[np.diff(program.configurations.start) == 0] = -1
    rest, numbers = remaining(program, choice)
    assert not len(numbers)
    assert not len(rest.value)

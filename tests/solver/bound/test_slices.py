"""Computing slice by slice gives the same results as for all columns at once."""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise

import numpy as np
import pytest
from instances import snapshot, with_rules
from programs import program_of

from hopsd.core.placement import configurations
from hopsd.core.placement.program import restrict
from hopsd.solver.bound.column_groups import ColumnGroups, column_groups
from hopsd.solver.bound.reduced_cost import prices_of_items


@pytest.mark.parametrize("at_once", [1, 7, 10**6])
@pytest.mark.parametrize("seed", range(4))
def test_slices_change_nothing(seed: int, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = with_rules(snapshot(seed, servers=6, jobs=15, first=bool(seed % 2)), seed)
    before = program_of(instance)
    groups = column_groups(before)
    share = np.linspace(0.1, 0.9, before.configurations.jobs)
    revalued_columns = before.configurations.revalue(lambda speed, job: speed * share[job], 0.7)
    monkeypatch.setattr(configurations, "SLICE", at_once)
    program = program_of(instance)
    assert np.array_equal(program.value, before.value)
    sliced_columns = program.configurations.revalue(lambda speed, job: speed * share[job], 0.7)
    assert np.array_equal(sliced_columns.throughput, revalued_columns.throughput)
    start, job = program.configurations.start, program.configurations.job_of_column()
    ends = [0, *(last for _, last in program.configurations.slices())]
    assert list(pairwise(ends)) == list(program.configurations.slices())
    assert ends[-1] == len(program.value)
    assert np.isin(ends, start).all()

    cost = np.random.default_rng(seed).uniform(0, 50, len(program.configurations.demands))
    prices = prices_of_items(program, cost, 0.0)
    profit = program.value - program.per_column(cost)
    best = np.zeros(len(start) - 1)
    np.maximum.at(best, job, profit)
    assert np.array_equal(prices.job, best)
    near_columns = np.concatenate(list(prices.near(program, absolute=3.0, relative=0.1)))
    loss = best[job] - profit
    assert np.array_equal(near_columns, np.flatnonzero(loss <= 3.0 + 0.1 * program.value))
    assert np.array_equal(prices.loss(program, near_columns), loss[near_columns])
    sliced_groups = column_groups(program)
    for field in fields(ColumnGroups):
        assert np.array_equal(getattr(sliced_groups, field.name), getattr(groups, field.name))


@pytest.mark.parametrize("seed", range(4))
def test_gain_is_value_by_weight_also_for_a_part(seed: int) -> None:
    program = program_of(snapshot(seed, servers=6, jobs=12))
    jobs = np.arange(program.configurations.jobs) % 2 == 0
    for program_part in (program, restrict(program, jobs, program.capacity)[0]):
        columns = np.arange(len(program_part.value))
        weight = program_part.weight[program_part.configurations.job_of_column()]
        assert np.array_equal(program_part.gain(columns) * weight, program_part.value)

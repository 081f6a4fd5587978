"""Greedy plans are feasible, leave no GPU idle that a job could use, and repair drops the least."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from instances import snapshot, with_rules
from programs import program_of, usable

from hopsd.core.placement.program import Program
from hopsd.model.arrays import Ints
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, Node, ThroughputTable
from hopsd.model.plan import RoundInfo, Snapshot
from hopsd.solver.bound.column_groups import column_groups
from hopsd.solver.bound.dual_prices import find_prices
from hopsd.solver.bound.reduced_cost import prices_of_items
from hopsd.solver.search.greedy import fill_idle, greedy_by_prices, greedy_by_weight, repair
from hopsd.solver.search.residual_capacity import ResidualCapacity


def program_under_rules(seed: int, jobs: int = 20) -> Program:
    return program_of(with_rules(snapshot(seed, servers=6, jobs=jobs), seed))


def leftover_of(program: Program, free_capacity: Ints) -> list[int]:
    """Return the free GPUs of each item's servers in turn."""
    demands, servers = program.configurations.demands, len(program.configurations.pool)
    return [
        sum(
            free_capacity[row] - amount for row, amount in demands.amounts_of(item) if row < servers
        )
        for item in range(len(demands))
    ]


@pytest.mark.slow
@settings(max_examples=25)
@given(st.integers(0, 10_000))
def test_free_capacity_is_tracked_over_every_change(seed: int) -> None:
    """It equals a recount, however columns are taken and returned."""
    program, rng = program_under_rules(seed, 8), np.random.default_rng(seed)
    columns = program.configurations
    choice = np.full(columns.jobs, -1, dtype=np.int64)
    residual = ResidualCapacity(program, choice)
    for job in rng.integers(0, columns.jobs, 30).tolist():
        first, last = int(columns.start[job]), int(columns.start[job + 1])
        if choice[job] >= 0:
            residual.give_back(int(choice[job]))
            choice[job] = -1
        elif (fits := np.flatnonzero(residual.fits(first, last))).size:
            choice[job] = first + int(rng.choice(fits))
            residual.take(int(choice[job]))
        free_capacity = program.capacity - program.usage(choice)
        assert np.array_equal(residual.free, free_capacity)
        assert np.array_equal(residual.fits(0, len(columns)), program.fits(free_capacity))
        items = rng.integers(0, len(columns.demands), 10)
        leftover = [leftover_of(program, free_capacity)[item] for item in items]
        assert residual.leftover(items).tolist() == leftover


@pytest.mark.parametrize("seed", range(8))
def test_both_greedy_plans_are_feasible_and_leave_nothing_usable(seed: int) -> None:
    program = program_under_rules(seed)
    heaviest = greedy_by_weight(program)
    floor = program.scaled_objective(heaviest)
    prices = find_prices(program, column_groups(program), floor, inf)
    for choice in (heaviest, greedy_by_prices(program, prices)):
        assert program.feasible(choice)
        assert usable(program, choice) == []
        assert program.scaled_objective(choice) <= prices.bound * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_a_greedy_plan_respects_held_columns(seed: int) -> None:
    """Held columns stay or improve if idle GPUs allow; no usable GPU stays idle."""
    program = program_under_rules(seed)
    heaviest = greedy_by_weight(program)
    present_choice = np.where(np.arange(len(heaviest)) % 3, -1, heaviest)
    floor = program.scaled_objective(heaviest)
    prices = find_prices(program, column_groups(program), floor, inf)
    before = present_choice.copy()
    choice = greedy_by_prices(program, prices, present_choice)
    assert np.array_equal(present_choice, before)
    assert program.feasible(choice)
    assert usable(program, choice) == []
    present_columns = present_choice[present_choice >= 0]
    assert np.all(program.value[choice[present_choice >= 0]] >= program.value[present_columns])


@pytest.mark.slow
@settings(max_examples=25)
@given(st.integers(0, 10_000))
def test_filling_makes_no_job_worse_off(seed: int) -> None:
    program, rng = program_under_rules(seed), np.random.default_rng(seed)
    held_choice = np.where(
        rng.random(program.configurations.jobs) < 0.5, greedy_by_weight(program), -1
    )
    filled_choice = fill_idle(program, held_choice)
    assert program.feasible(filled_choice)
    assert usable(program, filled_choice) == []
    is_placed = held_choice >= 0
    assert np.all(program.value[filled_choice[is_placed]] >= program.value[held_choice[is_placed]])


@pytest.mark.slow
@settings(max_examples=25)
@given(st.integers(0, 10_000))
def test_repair_keeps_the_most_valuable_columns(seed: int) -> None:
    """A dropped job's column does not fit beside columns worth at least as much."""
    program, rng = program_under_rules(seed), np.random.default_rng(seed)
    columns = program.configurations
    random_columns = rng.integers(
        columns.start[:-1], np.maximum(columns.start[1:], columns.start[:-1] + 1)
    )
    random_choice = np.where(np.diff(columns.start) > 0, random_columns, -1)
    repaired_choice = repair(program, random_choice)
    assert program.feasible(repaired_choice)
    assert np.all((repaired_choice == random_choice) | (repaired_choice == -1))
    assert np.array_equal(repair(program, repaired_choice), repaired_choice)
    for job in np.flatnonzero((random_choice >= 0) & (repaired_choice < 0)).tolist():
        worth = program.value[np.maximum(repaired_choice, 0)]
        swapped_choice = np.where(worth >= program.value[random_choice[job]], repaired_choice, -1)
        swapped_choice[job] = random_choice[job]
        assert not program.feasible(swapped_choice)


def test_the_best_fitting_of_equal_servers_is_chosen() -> None:
    """The first one would leave halves of two servers idle and the last job without a place."""
    nodes = tuple(
        Node(NodeName(f"n{index}"), GpuType("a"), 4, idle) for index, idle in enumerate((4, 2, 4))
    )
    table = ThroughputTable({1: 1.0, 4: 1.0}, {})
    jobs = tuple(
        Job(JobId(str(index)), UserName("u"), 0.0, 0.0, (gpus,), {GpuType("a"): table})
        for index, gpus in enumerate((2, 4, 4))
    )
    program = program_of(Snapshot(1e5, RoundInfo(first=True, seconds=1800.0), nodes, jobs))
    free = prices_of_items(program, np.zeros(len(program.configurations.demands)), 0.0)
    assert (greedy_by_prices(program, free) < 0).any()
    assert (greedy_by_prices(program, free, best_fit=True) >= 0).all()

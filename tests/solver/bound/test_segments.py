"""Implicit columns, and all results computed from them, equal explicit ones."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from math import inf
from time import monotonic
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from instances import snapshot, with_rules
from programs import program_of

from hopsd.core.placement import configurations, generate
from hopsd.core.placement.program import (
    Program,
    build,
    drop_oversized,
    restrict,
    restrict_to_jobs,
    segment_values,
)
from hopsd.model.arrays import NONE, Floats
from hopsd.model.plan import PlanStatus, Snapshot
from hopsd.model.rules import Limit, Rules
from hopsd.solver import large
from hopsd.solver.backend.checked_solver import CheckedSolver
from hopsd.solver.backend.solver_choice import backend
from hopsd.solver.bound import dual_prices
from hopsd.solver.bound.column_groups import column_groups
from hopsd.solver.bound.cuts import KINDS, capacity_rows
from hopsd.solver.bound.dual_prices import (
    Prices,
    _job_groups,
    _prices_of_sample,
    find_prices,
    prices_at,
    prices_in_stages,
)
from hopsd.solver.bound.envelope import upper_envelope
from hopsd.solver.bound.reduced_cost import prices_of_items
from hopsd.solver.large import Task, solve_large
from hopsd.solver.search.free_columns import FreeColumns
from hopsd.solver.search.greedy import fill_idle, greedy_by_prices, greedy_by_weight
from hopsd.solver.search.local_search import Effort, improve
from hopsd.solver.search.neighbourhoods import wanted_of_all
from hopsd.solver.search.residual_capacity import ResidualCapacity
from hopsd.solver.solve import solve


def explicit_and_segments(seed: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Program, Program]:
    """Return the program of a snapshot with explicit and with implicit columns."""
    instance: Snapshot = snapshot(seed, servers=6, jobs=15, first=bool(seed % 2))
    return both_of(with_rules(instance, seed) if seed > 1 else instance, monkeypatch)


def both_of(instance: Snapshot, monkeypatch: pytest.MonkeyPatch) -> tuple[Program, Program]:
    explicit_program = program_of(instance)
    monkeypatch.setattr(generate, "MAX_WRITTEN", 0)
    monkeypatch.setattr(generate, "_COLUMNS_PER_SET", 0)
    return explicit_program, program_of(instance)


SEEDS = pytest.mark.parametrize("seed", range(6))


@SEEDS
def test_segments_contain_every_explicit_column(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    explicit_program, program = explicit_and_segments(seed, monkeypatch)
    explicit_columns, segment_columns = explicit_program.configurations, program.configurations
    assert explicit_columns.segments is None
    assert segment_columns.segments is not None
    assert len(explicit_columns) == len(segment_columns) == segment_columns.segments.columns
    for name in ("start", "present", "capacity", "server"):
        assert np.array_equal(getattr(explicit_columns, name), getattr(segment_columns, name))
    rewritten_columns = segment_columns.write_out()
    numbers = np.random.default_rng(seed).integers(
        -len(explicit_columns), len(explicit_columns), 50
    )
    for name in ("shape", "throughput", "share"):
        values = getattr(explicit_columns, name)
        if values is None:
            assert getattr(segment_columns, name) is None
            continue
        assert np.array_equal(getattr(segment_columns, name)[:], values)
        assert np.array_equal(getattr(rewritten_columns, name), values)
        assert np.array_equal(getattr(segment_columns, name)[numbers], values[numbers])
        assert getattr(segment_columns, name)[3] == values[3]
    np.testing.assert_allclose(program.value[:], explicit_program.value, rtol=1e-12)
    assert np.array_equal(program.value[numbers], program.value[:][numbers])
    assert program.value.max() == program.value[:].max()
    assert np.array_equal(program.least, explicit_program.least)
    for first, last in [*pairwise(explicit_columns.start.tolist()), (2, 5), (4, 4)]:
        part = slice(first, last)
        assert np.array_equal(program.value[part], program.value[:][part])
        assert np.array_equal(segment_columns.shape[part], explicit_columns.shape[part])


@SEEDS
def test_segments_match_for_other_values_of_speed(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values as those of `hops+`: the envelope holds for them, too."""
    explicit_program, program = explicit_and_segments(seed, monkeypatch)
    explicit_columns, jobs = explicit_program.configurations, explicit_program.configurations.jobs
    rng = np.random.default_rng(seed)
    kept_share, least_speed, share = (
        rng.uniform(0.3, 1.0, jobs),
        rng.uniform(1, 9, jobs),
        rng.random(jobs),
    )
    expected, segment_program = (
        build(
            p.configurations.revalue(lambda speed, job: speed * share[job], 0.7),
            p.urgency.tolist(),
            1.0,
            kept_share,
            least_speed,
        )
        for p in (explicit_program, program)
    )
    job_of_column = explicit_columns.job_of_column()
    moves = np.where(
        np.arange(len(explicit_columns)) == explicit_columns.present[job_of_column],
        1.0,
        kept_share[job_of_column],
    )
    value = (
        explicit_program.urgency[job_of_column]
        * (explicit_columns.throughput * share[job_of_column]) ** 0.7
        / least_speed[job_of_column]
        * moves
    )
    np.testing.assert_allclose(expected.value, value, rtol=1e-12)
    assert segment_program.configurations.segments is not None
    np.testing.assert_allclose(segment_program.value[:], value, rtol=1e-12)
    cost = rng.uniform(0.0, 5.0, len(explicit_columns.demands))
    best = [prices_of_items(p, cost, 0.0).job for p in (expected, segment_program)]
    np.testing.assert_allclose(best[1], best[0], rtol=1e-12, atol=1e-9)


@SEEDS
def test_profits_and_near_best_columns_match(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    explicit_program, program = explicit_and_segments(seed, monkeypatch)
    rng = np.random.default_rng(seed)
    for highest in (0.0, 5.0, 50.0):
        cost = rng.uniform(0, highest, len(program.configurations.demands))
        expected, segment_prices = (
            prices_of_items(p, cost, 0.0) for p in (explicit_program, program)
        )
        np.testing.assert_allclose(segment_prices.job, expected.job, rtol=1e-12, atol=1e-9)
        for absolute, relative in ((3.0, 0.1), (0.5, 0.0), (0.0, 0.47)):
            near_columns, near_segments = (
                np.concatenate([NONE, *prices.near(p, absolute, relative)])
                for p, prices in ((explicit_program, expected), (program, segment_prices))
            )
            assert np.array_equal(near_columns, near_segments)
        sample = segment_prices.sample(program, 0.47, 2, rng)
        assert np.isin(sample, near_columns).all()
        values = segment_values(program)
        assert values is not None
        reached_segments = set(values.segments.find(sample).tolist())
        assert reached_segments == set(values.segments.find(near_columns).tolist())


@SEEDS
def test_parts_of_a_program_match(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    explicit_program, program = explicit_and_segments(seed, monkeypatch)
    jobs = np.arange(program.configurations.jobs) % 2 == 0
    free_capacity = program.capacity - program.usage(greedy_by_weight(program)) // 2
    for part, segment_part in (
        (restrict(explicit_program, jobs, free_capacity), restrict(program, jobs, free_capacity)),
        (drop_oversized(explicit_program), drop_oversized(program)),
    ):
        (explicit_part, explicit_kept), (segment_program, others_kept) = part, segment_part
        np.testing.assert_allclose(segment_program.value[:], explicit_part.value, rtol=1e-12)
        assert np.array_equal(
            explicit_part.configurations.present, segment_program.configurations.present
        )
        assert (explicit_kept is None) == (others_kept is None)
        if explicit_kept is not None and others_kept is not None:
            assert np.array_equal(explicit_kept, others_kept[:])
            assert np.array_equal(explicit_kept[[0, -1]], others_kept[np.array([0, -1])])


@SEEDS
def test_a_subset_of_jobs_keeps_its_columns(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    explicit_program, program = explicit_and_segments(seed, monkeypatch)
    job_mask = np.arange(program.configurations.jobs) % 3 == 0
    part, job = restrict_to_jobs(program, job_mask), explicit_program.configurations.job_of_column()
    kept_columns = np.flatnonzero(job_mask[job])
    assert np.array_equal(part.configurations.job_of_column(), job[kept_columns])
    assert np.array_equal(
        part.configurations.shape[:], explicit_program.configurations.shape[kept_columns]
    )
    np.testing.assert_allclose(part.value[:], explicit_program.value[kept_columns], rtol=1e-12)
    with pytest.raises(ValueError, match="written out"):
        restrict_to_jobs(explicit_program, job_mask)


@SEEDS
@pytest.mark.parametrize("max_servers", [1, 3, 100])
def test_servers_with_one_price_are_equivalent(
    seed: int, max_servers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = snapshot(seed, servers=40, jobs=15)
    program = program_of(with_rules(instance, seed) if seed > 1 else instance)
    monkeypatch.setattr(dual_prices, "_ALIKE", max_servers)
    group_of_item, columns = _job_groups(program), program.configurations
    servers = len(columns.pool)
    assert set(group_of_item.tolist()) == set(range(int(group_of_item.max()) + 1))
    groups_of_jobs = group_of_item[servers:].tolist()
    assert len(set(groups_of_jobs)) == len(groups_of_jobs)
    assert set(groups_of_jobs).isdisjoint(group_of_item[:servers].tolist())
    for pool, idle in {*zip(columns.pool.tolist(), program.idle.tolist(), strict=True)}:
        alike_servers = np.flatnonzero((columns.pool == pool) & (program.idle == idle))
        numbers = group_of_item[alike_servers][
            np.argsort(columns.speed[alike_servers], kind="stable")
        ]
        assert (np.diff(numbers) >= 0).all()
        assert (
            min(max_servers, len(alike_servers)) <= len(set(numbers.tolist())) < 2 * max_servers + 1
        )
        assert not np.isin(np.delete(group_of_item, alike_servers), numbers).any()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_prices_of_a_sample_are_near_those_of_all(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, program = both_of(snapshot(seed, servers=40, jobs=120), monkeypatch)
    monkeypatch.setattr(dual_prices, "_ALIKE", 2)
    rows, floor = capacity_rows(program), program.scaled_objective(greedy_by_weight(program))
    zero_prices = np.zeros((KINDS, len(program.capacity)))
    sample_prices = _prices_of_sample(program, rows, zero_prices, floor, inf, 30)
    first, group_of_item = sample_prices.reshape(KINDS, -1), _job_groups(program)
    assert all(
        len(np.unique(first[:, group_of_item == k], axis=1).T) == 1
        for k in np.unique(group_of_item)
    )
    best = find_prices(program, column_groups(program), floor, inf).bound
    zero_bound = prices_at(program, rows, zero_prices.ravel()).bound
    assert floor <= prices_at(program, rows, sample_prices).bound < best + 0.2 * (zero_bound - best)


@pytest.mark.slow
@SEEDS
def test_the_prices_of_every_stage_prove_a_bound(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    explicit_program, program = explicit_and_segments(seed, monkeypatch)
    best = solve(explicit_program, 0.0, 20.0)
    assert best.status is PlanStatus.OPTIMAL
    value = explicit_program.scaled_objective(best.choice)
    stages = list(prices_in_stages(program, column_groups(program), 0.5 * value, inf, early=True))
    assert len(stages) == 2
    for prices in stages:
        whole = prices_of_items(explicit_program, prices.item, prices.capacity)
        assert prices.bound == pytest.approx(whole.bound)
        assert prices.bound >= value * (1 - 1e-9)
    (last,) = prices_in_stages(program, column_groups(program), 0.5 * value, inf)
    assert np.array_equal(last.row, stages[-1].row)


@pytest.mark.slow
@SEEDS
def test_many_jobs_on_fragments_use_the_best_prices_of_two_stages(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    explicit_program, program = explicit_and_segments(seed, monkeypatch)
    value = explicit_program.scaled_objective(solve(explicit_program, 0.0, 20.0).choice)
    monkeypatch.setattr(dual_prices, "_MANY_JOBS", 1)
    first, last = prices_in_stages(program, column_groups(program), 0.5 * value, inf)
    for prices in (first, last):
        whole = prices_of_items(explicit_program, prices.item, prices.capacity)
        assert prices.bound == pytest.approx(whole.bound)
    assert value * (1 - 1e-9) <= last.bound <= first.bound


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_rounds_from_the_best_prices_come_near_long_ones(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, program = both_of(snapshot(seed, servers=40, jobs=120), monkeypatch)
    floor, parts = program.scaled_objective(greedy_by_weight(program)), column_groups(program)
    long = find_prices(program, parts, floor, inf).bound
    monkeypatch.setattr(dual_prices, "_MANY_JOBS", 1)
    assert find_prices(program, parts, floor, inf).bound <= 1.003 * long


@pytest.mark.slow
def test_a_round_never_starts_from_worse_prices_than_the_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, program = both_of(snapshot(1, servers=40, jobs=120), monkeypatch)
    rows, floor = capacity_rows(program), program.scaled_objective(greedy_by_weight(program))
    start, start_bounds, steps = np.full(len(rows.limit), 0.1), [], dual_prices.polyak_steps

    def note_start(dual: Any, at: Floats, *arguments: Any) -> Iterator[tuple[float, Floats]]:
        start_bounds.append(prices_at(program, rows, at).bound)
        return steps(dual, at, *arguments)

    monkeypatch.setattr(dual_prices, "polyak_steps", note_start)
    far = dual_prices._Rounds(20, 3.0, 0.7, end=8, from_best=True)
    round_prices = dual_prices._descend_in_rounds(program, rows, start, floor, inf, far)
    assert len(start_bounds) == 8
    assert start_bounds[0] == prices_at(program, rows, start).bound
    assert (np.diff(start_bounds) <= 0.0).all()
    assert floor <= round_prices.bound <= start_bounds[-1]


@pytest.mark.slow
@pytest.mark.parametrize(("gap", "stages"), [(0.5, 1), (0.0, 2)])
def test_a_larger_requested_gap_needs_fewer_prices(
    gap: float, stages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, program = both_of(snapshot(1, servers=40, jobs=120), monkeypatch)
    stage_prices = []

    def count_stages(*arguments: Any, early: bool) -> Iterator[Prices]:
        for prices in prices_in_stages(*arguments, early=True):
            stage_prices.append(prices)
            yield prices

    monkeypatch.setattr(large, "prices_in_stages", count_stages)
    task = Task(gap, monotonic() + 60.0, CheckedSolver(backend()))
    choice, bound, _ = solve_large(program, task, turns=0)
    assert len(stage_prices) == stages
    assert bound <= stage_prices[0].bound
    assert program.scaled_objective(choice) >= (1 - max(gap, 0.2)) * bound


@SEEDS
def test_groups_contain_all_columns(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _, program = explicit_and_segments(seed, monkeypatch)
    groups = column_groups(program)
    assert groups.first[0] == 0
    assert groups.end[-1] == len(program.value)
    best = [program.value[a:b].max() for a, b in zip(groups.first, groups.end, strict=True)]
    assert np.array_equal(groups.best, best)


@SEEDS
def test_free_columns_match(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    for program in explicit_and_segments(seed, monkeypatch):
        columns = program.configurations
        choice = greedy_by_weight(program)
        choice[rng.random(len(choice)) < 0.3] = -1
        residual = ResidualCapacity(program, choice)
        placed_jobs = np.flatnonzero(choice >= 0)
        residual.give_back(int(choice[placed_jobs[0]]))
        choice[placed_jobs[0]] = -1
        cost = rng.uniform(0, 5, len(columns.demands))
        fits = program.fits(program.capacity - program.usage(choice))
        starts = pairwise(columns.start.tolist())
        largest_values = [max(program.value[a:b], default=-np.inf) for a, b in starts]
        assert np.array_equal(program.most(), largest_values)
        for prices, worth in ((None, program.value[:]), (cost, program.profit(cost, slice(None)))):
            free = FreeColumns(program, residual, prices)
            for job, (first, end) in enumerate(pairwise(columns.start.tolist())):
                free_worth = np.where(fits[first:end], worth[first:end], -np.inf)
                best = max(free_worth, default=-np.inf)
                column, worth_of_column = free.best(job)
                assert worth_of_column == best
                assert column < 0 if best == -np.inf else worth[column] == best
                assert free.best(job, worth_of_column)[0] == -1


@SEEDS
def test_a_plan_is_feasible_and_its_bound_holds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    explicit_program, program = explicit_and_segments(seed, monkeypatch)
    expected = solve(explicit_program, 0.0, 20.0)
    solution = solve(program, 0.0, 20.0)
    assert program.feasible(solution.choice)
    assert np.array_equal(fill_idle(program, solution.choice), solution.choice)
    value = explicit_program.scaled_objective(solution.choice)
    assert value <= expected.bound * (1 + 1e-6)
    assert solution.bound >= explicit_program.scaled_objective(expected.choice) * (1 - 1e-6)
    prices = prices_of_items(program, np.zeros(len(program.configurations.demands)), 0.0)
    assert program.feasible(greedy_by_prices(program, prices))


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(-9, 9)), min_size=1, max_size=12))
@settings(deadline=None, max_examples=200)
def test_the_envelope_is_the_highest_line_everywhere(lines: list[tuple[int, int]]) -> None:
    slope, loss = (part.astype(np.float64) for part in np.array(sorted(lines, reverse=True)).T)
    line_numbers = upper_envelope(slope, loss)
    assert len(set(line_numbers.tolist())) == len(line_numbers)
    for x in np.linspace(0.0, 30.0, 61)[1:]:
        assert (slope * x - loss).max() == pytest.approx(
            (slope[line_numbers] * x - loss[line_numbers]).max()
        )


@SEEDS
def test_a_pass_of_the_search_matches(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _, program = explicit_and_segments(seed, monkeypatch)
    choice = greedy_by_weight(program)
    old_worth = program.scaled_objective(choice)
    prices = find_prices(program, column_groups(program), old_worth, inf)
    job = program.configurations.job_of_column()
    profit = program.profit(prices.item, slice(None))
    for able in (None, np.arange(len(program.configurations.demands)) % 2 == 0):
        wanted_columns = wanted_of_all(program, prices, np.random.default_rng(seed), able)
        jobs_with_column = np.flatnonzero(wanted_columns >= 0)
        assert np.array_equal(job[wanted_columns[jobs_with_column]], jobs_with_column)
        are_near = (
            prices.job[jobs_with_column] - profit[wanted_columns[jobs_with_column]]
            <= 0.021 * program.value[wanted_columns[jobs_with_column]]
        )
        assert are_near.all()
        if able is None:
            assert set(np.flatnonzero(prices.job > 0).tolist()) <= set(jobs_with_column.tolist())
        else:
            assert able[program.configurations.shape[wanted_columns[jobs_with_column]]].all()
    effort = Effort(0.0, monotonic() + 60.0)
    better = improve(program, choice, prices, (seed, 0), backend(), effort)
    assert program.feasible(better)
    assert old_worth <= program.scaled_objective(better) <= prices.bound * (1 + 1e-9)


@pytest.mark.parametrize("at_once", [1, 5, 1000])
def test_all_columns_are_written_out_in_parts(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    explicit_program, program = explicit_and_segments(2, monkeypatch)
    monkeypatch.setattr(configurations, "SLICE", at_once)
    rewritten_columns = program.configurations.write_out()
    assert np.array_equal(rewritten_columns.shape, explicit_program.configurations.shape)
    assert np.array_equal(rewritten_columns.throughput, explicit_program.configurations.throughput)


@SEEDS
def test_no_fitting_column_gives_an_empty_plan(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for program in explicit_and_segments(seed, monkeypatch):
        full = replace(program, capacity=np.zeros_like(program.capacity))
        solution = solve(full, 0.0, 5.0)
        assert (solution.choice == -1).all()
        assert solution.bound == 0.0


@SEEDS
def test_a_program_survives_pickling(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Child processes that solve linear programs receive it pickled."""
    _, program = explicit_and_segments(seed, monkeypatch)
    unpickled_program = pickle.loads(pickle.dumps(program))  # noqa: S301  # our own
    assert np.array_equal(unpickled_program.value[:], program.value[:])
    assert np.array_equal(
        unpickled_program.configurations.shape[:], program.configurations.shape[:]
    )
    assert np.array_equal(
        unpickled_program.value - np.ones(len(unpickled_program.value)), program.value[:] - 1.0
    )


def test_columns_of_few_jobs_are_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = snapshot(0, servers=6, jobs=15)
    monkeypatch.setattr(generate, "MAX_WRITTEN", 0)
    assert program_of(instance).configurations.segments is None
    monkeypatch.setattr(generate, "_COLUMNS_PER_SET", 1)
    assert program_of(instance).configurations.segments is not None


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_larger_plan_is_equally_good(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = snapshot(seed, servers=40, jobs=80)
    explicit_program = program_of(instance)
    monkeypatch.setattr(generate, "MAX_WRITTEN", 0)
    monkeypatch.setattr(generate, "_COLUMNS_PER_SET", 0)
    program = program_of(instance)
    assert program.configurations.segments is not None
    expected, segment_solution = (
        solve(p, 0.01, 100.0, turns=1) for p in (explicit_program, program)
    )
    value = program.scaled_objective(segment_solution.choice)
    assert value >= 0.98 * explicit_program.scaled_objective(expected.choice)
    assert value <= min(segment_solution.bound, expected.bound) * (1 + 1e-9)
    assert segment_solution.bound <= 1.02 * expected.bound


@pytest.mark.slow
def test_all_shapes_of_the_first_block_may_be_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each job has a limit below its needs on the first type, so no column remains there."""
    monkeypatch.setattr(generate, "MAX_WRITTEN", 0)
    monkeypatch.setattr(generate, "_COLUMNS_PER_SET", 0)
    instance = snapshot(0, servers=40, jobs=120)
    rules = Rules(min_gpus=((instance.nodes[0].gpu_type, 4),))
    jobs = tuple(replace(job, reqs=(1, 2, 4), rules=rules) for job in instance.jobs)
    limits = tuple(Limit(job.id, frozenset([job.id]), gpus=3) for job in jobs)
    program = program_of(replace(instance, jobs=jobs, limits=limits))
    assert program.feasible(solve(program, 0.01, 10.0).choice)

"""Columns that are not written out are as if they were, and so is what is computed from them."""

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
from instances import ruled, snapshot
from programs import program_of

from hopsd.core.placement import configurations, generate
from hopsd.core.placement.program import (
    Program,
    build,
    drop_oversized,
    of_jobs,
    restrict,
    segment_values,
)
from hopsd.model.arrays import NONE, Floats
from hopsd.model.plan import PlanStatus, Snapshot
from hopsd.model.rules import Limit, Rules
from hopsd.solver import large
from hopsd.solver.backend.checked import CheckedSolver
from hopsd.solver.backend.choose import backend
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


def both(seed: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Program, Program]:
    """The program of one snapshot with its columns written out, and without."""
    asked: Snapshot = snapshot(seed, servers=6, jobs=15, first=bool(seed % 2))
    return both_of(ruled(asked, seed) if seed > 1 else asked, monkeypatch)


def both_of(asked: Snapshot, monkeypatch: pytest.MonkeyPatch) -> tuple[Program, Program]:
    written = program_of(asked)
    monkeypatch.setattr(generate, "WRITTEN_MAX", 0)
    monkeypatch.setattr(generate, "_SHARED", 0)
    return written, program_of(asked)


SEEDS = pytest.mark.parametrize("seed", range(6))


@SEEDS
def test_every_column_is_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    written, program = both(seed, monkeypatch)
    own, other = written.configurations, program.configurations
    assert own.segments is None
    assert other.segments is not None
    assert len(own) == len(other) == other.segments.columns
    for name in ("start", "present", "capacity", "server"):
        assert np.array_equal(getattr(own, name), getattr(other, name))
    again = other.written()
    numbers = np.random.default_rng(seed).integers(-len(own), len(own), 50)
    for name in ("shape", "throughput", "share"):
        values = getattr(own, name)
        if values is None:
            assert getattr(other, name) is None
            continue
        assert np.array_equal(getattr(other, name)[:], values)
        assert np.array_equal(getattr(again, name), values)
        assert np.array_equal(getattr(other, name)[numbers], values[numbers])
        assert getattr(other, name)[3] == values[3]
    np.testing.assert_allclose(program.value[:], written.value, rtol=1e-12)
    assert np.array_equal(program.value[numbers], program.value[:][numbers])
    assert program.value.max() == program.value[:].max()
    assert np.array_equal(program.least, written.least)
    for first, last in [*pairwise(own.start.tolist()), (2, 5), (4, 4)]:
        part = slice(first, last)
        assert np.array_equal(program.value[part], program.value[:][part])
        assert np.array_equal(other.shape[part], own.shape[part])


@SEEDS
def test_speeds_of_other_worth(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of `hops+`: the envelope holds for them, too."""
    written, program = both(seed, monkeypatch)
    own, jobs = written.configurations, written.configurations.jobs
    rng = np.random.default_rng(seed)
    kept, least, share = rng.uniform(0.3, 1.0, jobs), rng.uniform(1, 9, jobs), rng.random(jobs)
    expected, found = (
        build(
            p.configurations.revalued(lambda speed, job: speed * share[job], 0.7),
            p.urgency.tolist(),
            1.0,
            kept,
            least,
        )
        for p in (written, program)
    )
    of = own.job_of_column()
    moves = np.where(np.arange(len(own)) == own.present[of], 1.0, kept[of])
    value = written.urgency[of] * (own.throughput * share[of]) ** 0.7 / least[of] * moves
    np.testing.assert_allclose(expected.value, value, rtol=1e-12)
    assert found.configurations.segments is not None
    np.testing.assert_allclose(found.value[:], value, rtol=1e-12)
    cost = rng.uniform(0.0, 5.0, len(own.demands))
    best = [prices_of_items(p, cost, 0.0).job for p in (expected, found)]
    np.testing.assert_allclose(best[1], best[0], rtol=1e-12, atol=1e-9)


@SEEDS
def test_profits_and_what_is_near_the_best(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    written, program = both(seed, monkeypatch)
    rng = np.random.default_rng(seed)
    for highest in (0.0, 5.0, 50.0):
        cost = rng.uniform(0, highest, len(program.configurations.demands))
        expected, found = (prices_of_items(p, cost, 0.0) for p in (written, program))
        np.testing.assert_allclose(found.job, expected.job, rtol=1e-12, atol=1e-9)
        for absolute, relative in ((3.0, 0.1), (0.5, 0.0), (0.0, 0.47)):
            near, also = (
                np.concatenate([NONE, *prices.near(p, absolute, relative)])
                for p, prices in ((written, expected), (program, found))
            )
            assert np.array_equal(near, also)
        sample = found.sample(program, 0.47, 2, rng)
        assert np.isin(sample, near).all()
        values = segment_values(program)
        assert values is not None
        reached = set(values.segments.find(sample).tolist())
        assert reached == set(values.segments.find(near).tolist())


@SEEDS
def test_parts_of_a_program(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    written, program = both(seed, monkeypatch)
    jobs = np.arange(program.configurations.jobs) % 2 == 0
    left = program.capacity - program.taken(greedy_by_weight(program)) // 2
    for part, also in (
        (restrict(written, jobs, left), restrict(program, jobs, left)),
        (drop_oversized(written), drop_oversized(program)),
    ):
        (own, kept), (other, others_kept) = part, also
        np.testing.assert_allclose(other.value[:], own.value, rtol=1e-12)
        assert np.array_equal(own.configurations.present, other.configurations.present)
        assert (kept is None) == (others_kept is None)
        if kept is not None and others_kept is not None:
            assert np.array_equal(kept, others_kept[:])
            assert np.array_equal(kept[[0, -1]], others_kept[np.array([0, -1])])


@SEEDS
def test_some_jobs_alone_keep_their_columns(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    written, program = both(seed, monkeypatch)
    chosen = np.arange(program.configurations.jobs) % 3 == 0
    part, job = of_jobs(program, chosen), written.configurations.job_of_column()
    kept = np.flatnonzero(chosen[job])
    assert np.array_equal(part.configurations.job_of_column(), job[kept])
    assert np.array_equal(part.configurations.shape[:], written.configurations.shape[kept])
    np.testing.assert_allclose(part.value[:], written.value[kept], rtol=1e-12)
    with pytest.raises(ValueError, match="written out"):
        of_jobs(written, chosen)


@SEEDS
@pytest.mark.parametrize("most", [1, 3, 100])
def test_servers_with_one_price_are_alike(
    seed: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = snapshot(seed, servers=40, jobs=15)
    program = program_of(ruled(asked, seed) if seed > 1 else asked)
    monkeypatch.setattr(dual_prices, "_ALIKE", most)
    to, columns = _job_groups(program), program.configurations
    servers = len(columns.pool)
    assert set(to.tolist()) == set(range(int(to.max()) + 1))
    beside = to[servers:].tolist()
    assert len(set(beside)) == len(beside)
    assert set(beside).isdisjoint(to[:servers].tolist())
    for pool, idle in {*zip(columns.pool.tolist(), program.idle.tolist(), strict=True)}:
        own = np.flatnonzero((columns.pool == pool) & (program.idle == idle))
        numbers = to[own][np.argsort(columns.speed[own], kind="stable")]
        assert (np.diff(numbers) >= 0).all()
        assert min(most, len(own)) <= len(set(numbers.tolist())) < 2 * most + 1
        assert not np.isin(np.delete(to, own), numbers).any()


@pytest.mark.parametrize("seed", range(3))
def test_prices_of_a_sample_are_near_those_of_all(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, program = both_of(snapshot(seed, servers=40, jobs=120), monkeypatch)
    monkeypatch.setattr(dual_prices, "_ALIKE", 2)
    rows, floor = capacity_rows(program), program.scaled_objective(greedy_by_weight(program))
    none = np.zeros((KINDS, len(program.capacity)))
    near = _prices_of_sample(program, rows, none, floor, inf, 30)
    first, to = near.reshape(KINDS, -1), _job_groups(program)
    assert all(len(np.unique(first[:, to == k], axis=1).T) == 1 for k in np.unique(to))
    best = find_prices(program, column_groups(program), floor, inf).bound
    nothing = prices_at(program, rows, none.ravel()).bound
    assert floor <= prices_at(program, rows, near).bound < best + 0.2 * (nothing - best)


@SEEDS
def test_the_prices_of_every_stage_prove_a_bound(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, program = both(seed, monkeypatch)
    best = solve(written, 0.0, 20.0)
    assert best.status is PlanStatus.OPTIMAL
    value = written.scaled_objective(best.choice)
    stages = list(prices_in_stages(program, column_groups(program), 0.5 * value, inf, early=True))
    assert len(stages) == 2
    for prices in stages:
        whole = prices_of_items(written, prices.item, prices.capacity)
        assert prices.bound == pytest.approx(whole.bound)
        assert prices.bound >= value * (1 - 1e-9)
    (last,) = prices_in_stages(program, column_groups(program), 0.5 * value, inf)
    assert np.array_equal(last.row, stages[-1].row)


@SEEDS
def test_many_jobs_on_fragments_have_the_best_prices_of_two_stages(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, program = both(seed, monkeypatch)
    value = written.scaled_objective(solve(written, 0.0, 20.0).choice)
    monkeypatch.setattr(dual_prices, "_MANY_JOBS", 1)
    first, last = prices_in_stages(program, column_groups(program), 0.5 * value, inf)
    for prices in (first, last):
        whole = prices_of_items(written, prices.item, prices.capacity)
        assert prices.bound == pytest.approx(whole.bound)
    assert value * (1 - 1e-9) <= last.bound <= first.bound


@pytest.mark.parametrize("seed", range(3))
def test_rounds_from_the_best_prices_come_near_those_of_long_ones(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, program = both_of(snapshot(seed, servers=40, jobs=120), monkeypatch)
    floor, parts = program.scaled_objective(greedy_by_weight(program)), column_groups(program)
    long = find_prices(program, parts, floor, inf).bound
    monkeypatch.setattr(dual_prices, "_MANY_JOBS", 1)
    assert find_prices(program, parts, floor, inf).bound <= 1.003 * long


def test_a_round_never_starts_from_worse_prices_than_the_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, program = both_of(snapshot(1, servers=40, jobs=120), monkeypatch)
    rows, floor = capacity_rows(program), program.scaled_objective(greedy_by_weight(program))
    start, begun, steps = np.full(len(rows.limit), 0.1), [], dual_prices.polyak_steps

    def noted(dual: Any, at: Floats, *asked: Any) -> Iterator[tuple[float, Floats]]:
        begun.append(prices_at(program, rows, at).bound)
        return steps(dual, at, *asked)

    monkeypatch.setattr(dual_prices, "polyak_steps", noted)
    far = dual_prices._Rounds(20, 3.0, 0.7, end=8, from_best=True)
    found = dual_prices._descend_in_rounds(program, rows, start, floor, inf, far)
    assert len(begun) == 8
    assert begun[0] == prices_at(program, rows, start).bound
    assert (np.diff(begun) <= 0.0).all()
    assert floor <= found.bound <= begun[-1]


@pytest.mark.parametrize(("gap", "stages"), [(0.5, 1), (0.0, 2)])
def test_a_larger_gap_asked_for_needs_fewer_prices(
    gap: float, stages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, program = both_of(snapshot(1, servers=40, jobs=120), monkeypatch)
    taken = []

    def counted(*asked: Any, early: bool) -> Iterator[Prices]:
        for prices in prices_in_stages(*asked, early=True):
            taken.append(prices)
            yield prices

    monkeypatch.setattr(large, "prices_in_stages", counted)
    task = Task(gap, monotonic() + 60.0, CheckedSolver(backend()))
    choice, bound, _ = solve_large(program, task, turns=0)
    assert len(taken) == stages
    assert bound <= taken[0].bound
    assert program.scaled_objective(choice) >= (1 - max(gap, 0.2)) * bound


@SEEDS
def test_groups_hold_all_columns(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _, program = both(seed, monkeypatch)
    groups = column_groups(program)
    assert groups.first[0] == 0
    assert groups.end[-1] == len(program.value)
    best = [program.value[a:b].max() for a, b in zip(groups.first, groups.end, strict=True)]
    assert np.array_equal(groups.best, best)


@SEEDS
def test_free_columns(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    for program in both(seed, monkeypatch):
        columns = program.configurations
        choice = greedy_by_weight(program)
        choice[rng.random(len(choice)) < 0.3] = -1
        residual = ResidualCapacity(program, choice)
        held = np.flatnonzero(choice >= 0)
        residual.give_back(int(choice[held[0]]))
        choice[held[0]] = -1
        cost = rng.uniform(0, 5, len(columns.demands))
        fits = program.fits(program.capacity - program.taken(choice))
        starts = pairwise(columns.start.tolist())
        most = [max(program.value[a:b], default=-np.inf) for a, b in starts]
        assert np.array_equal(program.most(), most)
        for prices, worth in ((None, program.value[:]), (cost, program.profit(cost, slice(None)))):
            free = FreeColumns(program, residual, prices)
            for job, (first, end) in enumerate(pairwise(columns.start.tolist())):
                own = np.where(fits[first:end], worth[first:end], -np.inf)
                best = max(own, default=-np.inf)
                column, found = free.best(job)
                assert found == best
                assert column < 0 if best == -np.inf else worth[column] == best
                assert free.best(job, found)[0] == -1


@SEEDS
def test_a_plan_is_feasible_and_its_bound_holds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    written, program = both(seed, monkeypatch)
    expected = solve(written, 0.0, 20.0)
    found = solve(program, 0.0, 20.0)
    assert program.feasible(found.choice)
    assert np.array_equal(fill_idle(program, found.choice), found.choice)
    value = written.scaled_objective(found.choice)
    assert value <= expected.bound * (1 + 1e-6)
    assert found.bound >= written.scaled_objective(expected.choice) * (1 - 1e-6)
    prices = prices_of_items(program, np.zeros(len(program.configurations.demands)), 0.0)
    assert program.feasible(greedy_by_prices(program, prices))


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(-9, 9)), min_size=1, max_size=12))
@settings(deadline=None, max_examples=200)
def test_the_envelope_has_the_highest_line_everywhere(lines: list[tuple[int, int]]) -> None:
    slope, less = (part.astype(np.float64) for part in np.array(sorted(lines, reverse=True)).T)
    kept = upper_envelope(slope, less)
    assert len(set(kept.tolist())) == len(kept)
    for x in np.linspace(0.0, 30.0, 61)[1:]:
        assert (slope * x - less).max() == pytest.approx((slope[kept] * x - less[kept]).max())


@SEEDS
def test_a_pass_of_the_search(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _, program = both(seed, monkeypatch)
    choice = greedy_by_weight(program)
    before = program.scaled_objective(choice)
    prices = find_prices(program, column_groups(program), before, inf)
    job = program.configurations.job_of_column()
    profit = program.profit(prices.item, slice(None))
    for able in (None, np.arange(len(program.configurations.demands)) % 2 == 0):
        wanted = wanted_of_all(program, prices, np.random.default_rng(seed), able)
        some = np.flatnonzero(wanted >= 0)
        assert np.array_equal(job[wanted[some]], some)
        near = prices.job[some] - profit[wanted[some]] <= 0.021 * program.value[wanted[some]]
        assert near.all()
        if able is None:
            assert set(np.flatnonzero(prices.job > 0).tolist()) <= set(some.tolist())
        else:
            assert able[program.configurations.shape[wanted[some]]].all()
    effort = Effort(0.0, monotonic() + 60.0)
    better = improve(program, choice, prices, (seed, 0), backend(), effort)
    assert program.feasible(better)
    assert before <= program.scaled_objective(better) <= prices.bound * (1 + 1e-9)


@pytest.mark.parametrize("at_once", [1, 5, 1000])
def test_all_are_written_out_in_parts(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    written, program = both(2, monkeypatch)
    monkeypatch.setattr(configurations, "SLICE", at_once)
    again = program.configurations.written()
    assert np.array_equal(again.shape, written.configurations.shape)
    assert np.array_equal(again.throughput, written.configurations.throughput)


@SEEDS
def test_no_column_fits(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for program in both(seed, monkeypatch):
        full = replace(program, capacity=np.zeros_like(program.capacity))
        found = solve(full, 0.0, 5.0)
        assert (found.choice == -1).all()
        assert found.bound == 0.0


@SEEDS
def test_a_program_survives_pickling(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Children that solve linear programs get it so."""
    _, program = both(seed, monkeypatch)
    again = pickle.loads(pickle.dumps(program))  # noqa: S301  # our own
    assert np.array_equal(again.value[:], program.value[:])
    assert np.array_equal(again.configurations.shape[:], program.configurations.shape[:])
    assert np.array_equal(again.value - np.ones(len(again.value)), program.value[:] - 1.0)


def test_what_few_jobs_share_is_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = snapshot(0, servers=6, jobs=15)
    monkeypatch.setattr(generate, "WRITTEN_MAX", 0)
    assert program_of(asked).configurations.segments is None
    monkeypatch.setattr(generate, "_SHARED", 1)
    assert program_of(asked).configurations.segments is not None


@pytest.mark.parametrize("seed", range(2))
def test_a_larger_plan_is_as_good(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = snapshot(seed, servers=40, jobs=80)
    written = program_of(asked)
    monkeypatch.setattr(generate, "WRITTEN_MAX", 0)
    monkeypatch.setattr(generate, "_SHARED", 0)
    program = program_of(asked)
    assert program.configurations.segments is not None
    expected, found = (solve(p, 0.01, 100.0, turns=1) for p in (written, program))
    value = program.scaled_objective(found.choice)
    assert value >= 0.98 * written.scaled_objective(expected.choice)
    assert value <= min(found.bound, expected.bound) * (1 + 1e-9)
    assert found.bound <= 1.02 * expected.bound


def test_all_shapes_of_the_first_block_may_be_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each job has a limit below what it needs on the first type: no column there is left."""
    monkeypatch.setattr(generate, "WRITTEN_MAX", 0)
    monkeypatch.setattr(generate, "_SHARED", 0)
    asked = snapshot(0, servers=40, jobs=120)
    rules = Rules(min_gpus=((asked.nodes[0].gpu_type, 4),))
    jobs = tuple(replace(job, reqs=(1, 2, 4), rules=rules) for job in asked.jobs)
    limits = tuple(Limit(job.id, frozenset([job.id]), gpus=3) for job in jobs)
    program = program_of(replace(asked, jobs=jobs, limits=limits))
    assert program.feasible(solve(program, 0.01, 10.0).choice)

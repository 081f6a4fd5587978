"""Hare's schedules and bounds against exhaustive search, and the checker against errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations, product
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from task_cases import instance, small_instances

from bench.hare.exhaustive import optimum
from hopsd.errors import InputError, SolverError
from hopsd.policies.hare.relaxation import RelaxedSequence, relax
from hopsd.policies.hare.schedule_check import violations
from hopsd.policies.hare.schedulers import SCHEDULERS, schedule
from hopsd.policies.hare.tasks import Instance, Schedule

NAMES = sorted(SCHEDULERS)


def least_of_all_orders(case: Instance) -> float:
    """Return the least sum of w_n C_n over all assignments of tasks to GPUs and all orders."""
    rounds = [
        (n, r)
        for n in range(case.jobs)
        for r in range(case.rounds[n])
        for _ in range(case.scale[n])
    ]
    gpus = range(len(case.gpu_type))
    best = np.inf
    for gpu_of_task in product(gpus, repeat=len(rounds)):
        queues = [[task for task in range(len(rounds)) if gpu_of_task[task] == gpu] for gpu in gpus]
        for orders in product(*map(permutations, queues)):
            best = min(best, _cost(case, rounds, orders))
    return best


def _cost(
    case: Instance, rounds: Sequence[tuple[int, int]], orders: Sequence[Sequence[int]]
) -> float:
    """Return the cost if each task starts as early as its GPU and the previous round permit."""
    queues = [list(order) for order in orders]
    free = case.free_from.tolist()
    sync_ends: dict[int, float] = {}
    has_moved = True
    while has_moved:
        has_moved = False
        for gpu, queue in enumerate(queues):
            if not queue:
                continue
            job, turn = rounds[queue[0]]
            before = [task for task, job_round in enumerate(rounds) if job_round == (job, turn - 1)]
            if all(task in sync_ends for task in before):
                kind = case.gpu_type[gpu]
                ready = max([float(case.arrival[job]), *(sync_ends[task] for task in before)])
                free[gpu] = max(free[gpu], ready) + case.train[job, kind]
                sync_ends[queue.pop(0)] = free[gpu] + case.sync[job, kind]
                has_moved = True
    if any(queues):
        return np.inf
    ends = [max(sync_ends[t] for t, (n, _) in enumerate(rounds) if n == job)
            for job in range(case.jobs)]  # fmt: skip
    return float(case.weight @ np.array(ends))


@settings(max_examples=40, deadline=None)
@given(small_instances(tasks_max=4))
def test_the_exhaustive_search_misses_no_order(case: Instance) -> None:
    assert optimum(case) == pytest.approx(least_of_all_orders(case))


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(small_instances(), st.sampled_from(NAMES), st.sampled_from([2, 7, 40]))
def test_a_schedule_is_feasible_and_between_bound_and_guarantee(
    case: Instance, name: str, intervals: int
) -> None:
    task_schedule = schedule(case, SCHEDULERS[name], intervals)
    assert violations(case, task_schedule) == []
    least_completion = optimum(case)
    completion = task_schedule.weighted_completion(case)
    assert task_schedule.lower_bound <= least_completion * (1 + 1e-7)
    assert least_completion <= completion * (1 + 1e-9)
    assert completion <= case.alpha * (2 + case.alpha) * least_completion


def test_the_bound_of_a_single_job_is_its_time_on_the_fastest_gpu() -> None:
    case = instance([[2.0, 5.0]], sync=0.5, rounds=[4], scale=[1], arrival=[3.0], weight=[2.0])
    assert optimum(case) == pytest.approx(2 * (3 + 4 * 2.5))
    assert relax(case).lower_bound == pytest.approx(2 * (3 + 4 * 2.5))


def test_the_bound_includes_waiting_for_a_gpu() -> None:
    """Ten equal tasks on one GPU end at 1 to 10; with fine intervals, the bound is close."""
    case = instance([[1.0]] * 10)
    assert relax(case, 400).lower_bound == pytest.approx(55, rel=0.02)


def test_more_intervals_do_not_loosen_the_bound() -> None:
    case = instance([[1.0, 3.0]] * 6, sync=0.2, rounds=[3] * 6, scale=[2] * 6)
    bounds = [relax(case, 10 * 2**k + 1).lower_bound for k in range(4)]
    assert bounds == sorted(bounds)
    assert bounds[-1] > bounds[0]


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(NAMES))
def test_times_of_any_magnitude_are_scheduled(seed: int, name: str) -> None:
    """Times from milliseconds to years, weights from a thousandth to a thousand."""
    rng = np.random.default_rng(seed)
    case = instance(
        (10 ** rng.uniform(-3, 8, (12, 1)) * [[1.0, 20.0]]).tolist(),
        rounds=rng.integers(1, 9, 12).tolist(),
        scale=rng.integers(1, 9, 12).tolist(),
        weight=(10 ** rng.uniform(-3, 3, 12)).tolist(),
        gpu_type=[0, 1, 1],
    )
    task_schedule = schedule(case, SCHEDULERS[name], 6)
    assert violations(case, task_schedule) == []
    assert 0 < task_schedule.lower_bound <= task_schedule.weighted_completion(case)


@settings(max_examples=20, deadline=None)
@given(small_instances())
def test_a_solver_that_gives_up_still_gives_a_bound(case: Instance) -> None:
    with patch("hopsd.policies.hare.relaxation.minimise", side_effect=SolverError("gave up")):
        task_schedule = schedule(case, SCHEDULERS["hare-eft"])
    assert violations(case, task_schedule) == []
    assert 0 < task_schedule.lower_bound <= optimum(case) * (1 + 1e-9)


def test_algorithm_1_takes_the_first_free_gpu_whatever_its_speed() -> None:
    """One of two jobs gets the idle GPU that is ten times slower, though it had better wait."""
    case = instance([[1.0, 10.0], [1.0, 10.0]])
    slow = schedule(case, SCHEDULERS["hare"])
    assert sorted(slow.completion(case)) == [1.0, 10.0]
    fast = schedule(case, SCHEDULERS["hare-eft"])
    assert sorted(fast.completion(case)) == [1.0, 2.0]


def test_tasks_of_a_round_may_follow_one_another_on_one_gpu() -> None:
    case = instance([[1.0]], sync=0.25, rounds=[2], scale=[3])
    task_schedule = schedule(case, SCHEDULERS["hare"])
    assert task_schedule.start.tolist() == [0.0, 1.0, 2.0, 3.25, 4.25, 5.25]
    assert task_schedule.completion(case).tolist() == [6.5]


def test_dispatching_fills_the_time_before_a_task_that_cannot_start_yet() -> None:
    """Job 0 comes first and synchronises for long: in list order, the GPU idles and job 1 waits."""
    case = instance([[1.0], [1.0]], sync=[[3.0], [0.0]], rounds=[2, 3])
    relaxation = RelaxedSequence(0.0, np.array([0.0, 1.0, 2.0, 3.0, 4.0]))
    assert SCHEDULERS["hare"](case, relaxation).start.tolist() == [0.0, 4.0, 5.0, 6.0, 7.0]
    assert SCHEDULERS["hare-dispatch"](case, relaxation).start.tolist() == [0.0, 4.0, 1.0, 2.0, 3.0]


def test_synchronisation_does_not_hold_the_gpu() -> None:
    case = instance([[1.0], [1.0]], sync=0.5, rounds=[2, 2])
    task_schedule = schedule(case, SCHEDULERS["hare-eft"])
    assert sorted(task_schedule.start.tolist()) == pytest.approx([0.0, 1.0, 2.0, 3.0])


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(small_instances(), st.sampled_from(NAMES))
def test_equal_inputs_give_equal_schedules(case: Instance, name: str) -> None:
    schedule_of_case, two = (
        schedule(case, SCHEDULERS[name]),
        schedule(replace(case), SCHEDULERS[name]),
    )
    assert schedule_of_case.lower_bound == two.lower_bound
    assert np.array_equal(schedule_of_case.start, two.start)
    assert np.array_equal(schedule_of_case.gpu, two.gpu)


CASE = instance(
    [[1.0, 2.0], [1.5, np.inf]], sync=0.5, rounds=[2, 1], scale=[2, 1], arrival=[1.0, 0.0],
    free_from=[0.0, 1.5],
)  # fmt: skip
START, GPU = [1.5, 1.5, 4.0, 5.0, 0.0], [0, 1, 0, 0, 0]


def test_the_checker_accepts_a_feasible_schedule() -> None:
    assert violations(CASE, Schedule(np.array(START), np.array(GPU), 0.0)) == []


@pytest.mark.parametrize(
    ("task", "start", "gpu", "constraint"),
    [
        (4, -1.0, 0, "(4)"),
        (4, float("nan"), 0, "(4)"),
        (4, 0.0, 2, "(5)"),
        (4, 9.0, 1, "(5)"),
        (2, 3.9, 0, "(7)"),
        (3, 4.9, 0, "(8)"),
        (0, 1.4, 0, "(8)"),
        (1, 1.4, 1, "(8)"),
    ],
)
def test_the_checker_names_the_broken_constraint(
    task: int, start: float, gpu: int, constraint: str
) -> None:
    starts, gpus = np.array(START), np.array(GPU)
    starts[task], gpus[task] = start, gpu
    problems = violations(CASE, Schedule(starts, gpus, 0.0))
    assert problems
    assert {sentence[:3] for sentence in problems} == {constraint}


def test_the_checker_misses_no_task() -> None:
    problems = violations(CASE, Schedule(np.array(START[:-1]), np.array(GPU[:-1]), 0.0))
    assert problems == ["(5) 4 tasks have a start, 4 a GPU, there are 5"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"weight": [0.0]}, "weight"),
        ({"rounds": [0]}, "rounds"),
        ({"scale": [0]}, "scale"),
        ({"sync": -1.0}, "sync"),
        ({"arrival": [np.inf]}, "arrival"),
        ({"gpu_type": [1]}, "gpu_type"),
        ({"gpu_type": []}, "no GPU"),
        ({"train": [[0.0]]}, "train"),
        ({"train": [[np.inf]]}, "job 0 can run on no GPU"),
    ],
)
def test_impossible_jobs_are_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        instance(**({"train": [[1.0]]} | change))  # type: ignore[arg-type]


def test_alpha_is_the_largest_ratio_among_the_present_gpus() -> None:
    three = [[1.0, 2.0, 50.0], [3.0, 12.0, 1.0]]
    case = instance(three, sync=[[1.0, 1.0, 9.0], [1.0, 2.5, 9.0]], gpu_type=[0, 1])
    assert case.alpha == 4.0

"""Hand-computed and generated schedules with switches between jobs."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from task_cases import instance, small_instances

from hopsd.policies.hare.schedule_check import violations
from hopsd.policies.hare.schedulers import SCHEDULERS, schedule
from hopsd.policies.hare.switching import lent_to_nobody, switches, with_switches
from hopsd.policies.hare.tasks import Instance, Schedule

NAMES = sorted(SCHEDULERS)


def schedule_of(start: list[float], gpu: list[int]) -> Schedule:
    return Schedule(np.array(start), np.array(gpu, dtype=np.int64), 0.0)


def test_each_switch_delays_the_following_tasks() -> None:
    """Two jobs alternate on a GPU in tasks of 10 s; each synchronises for 5 s meanwhile."""
    case = instance([[10.0], [10.0]], sync=5.0, rounds=[2, 2])
    two_on_one_gpu = schedule_of([0.0, 20.0, 10.0, 30.0], [0] * 4)
    assert switches(case, two_on_one_gpu).tolist() == [False, True, True, True]
    later = with_switches(case, two_on_one_gpu, np.array([1.0, 2.0]))
    assert later.start.tolist() == [0.0, 23.0, 12.0, 35.0]
    assert later.completion(case).tolist() == [38.0, 50.0]
    assert violations(case, later) == []


def test_an_idle_gpu_hides_a_switch() -> None:
    case = instance([[10.0], [10.0]], arrival=[0.0, 14.0])
    gap_on_one_gpu = schedule_of([0.0, 14.0], [0, 0])
    assert with_switches(case, gap_on_one_gpu, np.array([4.0, 4.0])).start.tolist() == [0.0, 14.0]
    assert with_switches(case, gap_on_one_gpu, np.array([5.0, 5.0])).start.tolist() == [0.0, 15.0]


def test_a_late_task_delays_all_tasks_of_its_jobs_next_round() -> None:
    """Job 1 has two tasks per round, on GPUs 0 and 1; before that, GPU 0 trains job 0 for 10 s."""
    case = instance([[10.0], [4.0]], rounds=[1, 2], scale=[1, 2], gpu_type=[0, 0])
    three_rounds = schedule_of([0.0, 10.0, 10.0, 14.0, 14.0], [0, 0, 1, 0, 1])
    later = with_switches(case, three_rounds, np.array([3.0, 3.0]))
    assert later.start.tolist() == [0.0, 13.0, 10.0, 17.0, 17.0]
    assert switches(case, three_rounds).sum() == 1


def test_no_gpu_is_lent_while_its_job_synchronises() -> None:
    """Without lending the GPU, both jobs hold it for 15 s per task instead of 10 s."""
    case = instance([[10.0], [10.0]], sync=5.0, rounds=[2, 2])
    lent_case = lent_to_nobody(case)
    assert (lent_case.train.tolist(), lent_case.sync.tolist()) == ([[15.0], [15.0]], [[0.0], [0.0]])
    assert lent_case.alpha == case.alpha == 1.0


@pytest.mark.parametrize("name", NAMES)
@given(case=small_instances(), seconds=st.floats(0.0, 3.0))
@settings(max_examples=30)
def test_schedules_with_switches_are_feasible_and_near_the_bound(
    name: str, case: Instance, seconds: float
) -> None:
    plain_schedule = schedule(case, SCHEDULERS[name])
    later = with_switches(case, plain_schedule, np.full(case.jobs, seconds))
    assert violations(case, later) == []
    assert (later.start >= plain_schedule.start).all()
    assert later.lower_bound <= later.weighted_completion(case) * (1 + 1e-9)
    job = case.job_of_task
    for gpu in range(len(case.gpu_type)):
        tasks = sorted(np.flatnonzero(later.gpu == gpu), key=later.start.__getitem__)
        for previous, following in pairwise(tasks):
            gap = later.start[following] - later.start[previous]
            gap -= case.train[job[previous], case.gpu_type[gpu]]
            assert gap >= (seconds if job[previous] != job[following] else 0.0) - 1e-6


@pytest.mark.parametrize("name", NAMES)
@given(case=small_instances())
@settings(max_examples=30)
def test_switches_without_duration_change_nothing(name: str, case: Instance) -> None:
    plain_schedule = schedule(case, SCHEDULERS[name])
    later = with_switches(case, plain_schedule, np.zeros(case.jobs))
    assert np.allclose(later.start, plain_schedule.start, rtol=1e-9, atol=1e-9)

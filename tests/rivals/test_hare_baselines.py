"""Hare's baselines against schedules worked out by hand; all their schedules are feasible."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hops_rivals.hare import BASELINES
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from task_cases import instance, small_instances

from bench.hare.exhaustive import optimum
from bench.hare.runs import SCHEMES, run
from bench.hare.workload import DOMAINS, MODELS, Scenario
from hopsd.errors import InputError
from hopsd.policies.hare.schedule_check import violations
from hopsd.policies.hare.tasks import Instance


def ends(name: str, case: Instance) -> list[float]:
    schedule = BASELINES[name](case, 0.0)
    assert violations(case, schedule) == []
    return schedule.completion(case).tolist()


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(small_instances(), st.sampled_from(sorted(BASELINES)))
def test_schedules_are_feasible_and_no_better_than_the_optimum(case: Instance, name: str) -> None:
    able = np.isfinite(case.train[:, case.gpu_type]).sum(axis=1)
    assume(bool((case.scale <= able).all()))
    schedule = BASELINES[name](case, 1.5)
    assert violations(case, schedule) == []
    assert schedule.lower_bound == 1.5
    assert schedule.weighted_completion(case) >= optimum(case) * (1 - 1e-9)


def test_under_fifo_no_job_overtakes() -> None:
    """Job 1 needs both GPUs and waits for job 0; job 2 would fit, and waits too."""
    case = instance(
        [[4.0], [1.0], [1.0]], scale=[1, 2, 1], arrival=[0.0, 0.5, 0.6], gpu_type=[0, 0]
    )
    assert ends("Gavel_FIFO", case) == [4.0, 5.0, 6.0]
    assert ends("Sched_Homo", case) == [4.0, 5.0, 1.6]


def test_gavel_takes_the_fastest_idle_gpu_and_the_oblivious_scheme_the_first() -> None:
    case = instance([[5.0, 1.0]])
    assert ends("Gavel_FIFO", case) == [1.0]
    assert ends("Sched_Homo", case) == [5.0]


def test_a_round_is_as_long_as_its_slowest_task() -> None:
    case = instance([[1.0, 3.0]], sync=0.5, rounds=[2], scale=[2])
    assert ends("Gavel_FIFO", case) == [7.0]


def test_the_oblivious_scheme_serves_weight_per_work_first() -> None:
    case = instance([[2.0], [3.0], [1.0]], weight=[1.0, 4.0, 1.0])
    assert ends("Sched_Homo", case) == [6.0, 3.0, 4.0]


def test_srtf_preempts_between_rounds() -> None:
    case = instance([[1.0], [1.0]], rounds=[5, 2], arrival=[0.0, 1.5])
    assert ends("SRTF", case) == [7.0, 4.0]


def test_allox_gives_a_job_one_gpu_for_all_of_its_tasks() -> None:
    case = instance([[1.0]], sync=0.5, rounds=[2], scale=[3], gpu_type=[0, 0, 0])
    assert ends("Sched_Allox", case) == [7.0]


def test_allox_matches_jobs_to_the_gpus_that_suit_them() -> None:
    """Both are faster on the first; together best is 3 + 4, one after the other is 2 + 6."""
    case = instance([[2.0, 3.0], [4.0, 9.0]])
    assert ends("Sched_Allox", case) == [3.0, 4.0]


@pytest.mark.parametrize("name", ["Gavel_FIFO", "SRTF", "Sched_Homo"])
def test_a_scale_above_the_gpus_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="job 1 runs 3 tasks at once, but can only use 2 GPUs"):
        BASELINES[name](instance([[1.0], [1.0]], scale=[1, 3], gpu_type=[0, 0]), 0.0)


def test_scenarios_differ_only_in_what_they_say() -> None:
    base = Scenario(jobs=30).instance()
    slow = Scenario(jobs=30, bandwidth=12.5).instance()
    assert np.array_equal(base.train, slow.train)
    assert np.array_equal(base.arrival, slow.arrival)
    assert (slow.sync >= base.sync).all()
    assert (base.sync <= base.train[:, :1] * (1 + 1e-9)).all()


def test_a_mix_determines_the_jobs() -> None:
    scenario = Scenario(jobs=400, mix=dict.fromkeys(DOMAINS, 0.0) | {"Rec.": 1.0})
    case = scenario.instance()
    longest = max(m.minutes[1] for m in MODELS if m.domain == "Rec.")
    assert (case.rounds * case.train[:, 0]).max() <= 60 * longest * (1 + 1e-9)


def test_a_run_compares_all_schemes_on_one_instance() -> None:
    small = {"V100": 4, "K80": 4}
    comparison = run(replace(Scenario(jobs=8, gpus=small)).instance())
    assert set(comparison.objective) == set(SCHEMES)
    assert min(comparison.objective.values()) >= comparison.bound > 0

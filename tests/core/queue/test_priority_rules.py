"""Section 3: age (eq. 9), priorities (eq. 8) and the queue; RAQLR (eq. 7)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from queued_jobs import NODES, T4, V100, job, snapshot, urgency

from hopsd.core.queue.competing import idle_gpus
from hopsd.core.queue.priority import age_seconds, queue
from hopsd.model.allocation import Allocation
from hopsd.model.ids import NodeName
from hopsd.model.job import Job, JobState, ThroughputTable
from hopsd.model.plan import PlanSettings, PriorityName


def test_age_weights_types_by_their_gpus() -> None:
    expected = 12 / 16 * 6000 / (100 * 2) + 4 / 16 * 6000 / (25 * 2)
    assert age_seconds(job(samples=6000.0), NODES) == pytest.approx(expected)


def test_age_ignores_server_factors() -> None:
    slow = job(samples=6000.0, server_factor={NodeName("a"): 0.1})
    assert age_seconds(slow, NODES) == age_seconds(job(samples=6000.0), NODES)


def test_a_type_unknown_to_the_job_is_excluded_from_its_age() -> None:
    single = job(samples=6000.0, throughput={T4: ThroughputTable({1: 25.0})})
    assert age_seconds(single, NODES) == pytest.approx(6000 / (25 * 2))


def test_a_type_too_small_for_the_smallest_requirement_is_excluded_from_its_age() -> None:
    large = job(samples=6000.0, reqs=(6, 8))
    assert age_seconds(large, NODES) == pytest.approx(6000 / (100 * 7))


def test_a_type_that_fits_only_a_spread_job_stays_in_its_age() -> None:
    wide = job(samples=6000.0, reqs=(10,), throughput={V100: ThroughputTable({1: 50.0}, {2: 40.0})})
    assert age_seconds(wide, NODES) == pytest.approx(6000 / (50 * 10))


def test_a_given_age_takes_precedence_over_samples_and_these_over_the_time_limit() -> None:
    full = job(age_seconds=50.0, samples=6000.0, time_limit_seconds=70.0)
    assert age_seconds(full, NODES) == 50.0
    assert age_seconds(replace(full, age_seconds=None), NODES) == pytest.approx(52.5)
    assert age_seconds(replace(full, age_seconds=None, samples=None), NODES) == 70.0
    assert age_seconds(job(), NODES) == 3600.0


def test_the_latency_ratio_is_wait_over_age() -> None:
    assert urgency(PriorityName.LATENCY_RATIO, job(age_seconds=1200.0)) == [0.5]


def test_fifo_counts_seconds_since_submission() -> None:
    assert urgency(PriorityName.FIFO, job(submit=300.0)) == [700.0]


def test_sjf_is_the_inverse_of_the_age() -> None:
    assert urgency(PriorityName.SJF, job(age_seconds=1200.0)) == [1 / 1200.0]


def test_srtf_is_the_inverse_of_the_remaining_time_by_samples_or_age() -> None:
    by_samples = job(age_seconds=1200.0, samples=100.0, samples_done=75.0, run_seconds=9.0)
    by_time = job("2", age_seconds=1200.0, run_seconds=200.0)
    assert urgency(PriorityName.SRTF, by_samples, by_time) == [1 / 300.0, 1 / 1000.0]


def test_a_job_past_its_age_is_expected_to_run_as_long_again() -> None:
    """Regression: it was the most urgent job, which rewarded users who declared too little."""
    finished_job = job(age_seconds=1200.0, run_seconds=5000.0)
    assert urgency(PriorityName.SRTF, finished_job) == [pytest.approx(1 / 5000.0)]
    late_job = job(samples=100.0, samples_done=100.0, run_seconds=700.0, age_seconds=600.0)
    assert urgency(PriorityName.SRTF, late_job) == [pytest.approx(1 / 700.0)]


def test_a_job_is_never_expected_to_run_shorter_than_it_has_run() -> None:
    long_job = job(age_seconds=7.0, wait_seconds=100.0, run_seconds=5000.0)
    assert urgency(PriorityName.LATENCY_RATIO, long_job) == [pytest.approx(100.0 / 5000.0)]
    assert urgency(PriorityName.SJF, long_job) == [pytest.approx(1 / 5000.0)]


def test_las_falls_with_attained_gpu_seconds() -> None:
    assert urgency(PriorityName.LAS, job(), job("2", attained_gpu_seconds=3.0)) == [1.0, 0.25]


def test_ftf_compares_with_a_fair_share_of_the_cluster() -> None:
    two = [job(age_seconds=1200.0, submit=400.0), job("2", age_seconds=1200.0)]
    # 16 GPUs for 2 jobs are more than the 3 that the job may use: alone it takes 1200 s x 2 / 3
    # GPUs.
    assert urgency(PriorityName.FTF, *two)[0] == pytest.approx((600 + 1200) / 800)
    queue_of_sixteen = [job(str(i), age_seconds=1200.0, submit=400.0) for i in range(16)]
    assert urgency(PriorityName.FTF, *queue_of_sixteen)[0] == pytest.approx((600 + 1200) / 2400)


def test_a_given_priority_overrides_the_formula() -> None:
    for name in PriorityName:
        assert urgency(name, job(priority=-7.0)) == [-7.0]


def test_the_queue_is_sorted_by_priority_then_submit_time_then_id() -> None:
    jobs = [
        job("10", priority=1.0, submit=5.0),
        job("9", priority=1.0, submit=5.0),
        job("x", priority=1.0, submit=5.0),
        job("8", priority=1.0, submit=4.0),
        job("7", priority=2.0, submit=9.0),
    ]
    ordered_jobs = queue(snapshot(*jobs), PlanSettings()).jobs
    assert [j.id for j in ordered_jobs] == ["7", "8", "9", "10", "x"]


@given(st.permutations([job(str(i), priority=float(i % 3), submit=i % 2) for i in range(8)]))
def test_the_queue_does_not_depend_on_the_order_of_the_jobs(jobs: list[Job]) -> None:
    expected = queue(snapshot(*sorted(jobs, key=lambda j: j.id)), PlanSettings()).jobs
    assert queue(snapshot(*jobs), PlanSettings()).jobs == expected


RUNS = Allocation.of({"b": 2})
ALL_KINDS = (
    job("waits"),
    job("runs", running=RUNS),
    job("pinned", running=RUNS, preemptible=False),
    job("pinned-waits", preemptible=False),
    job("held", state=JobState.HELD),
    job("depends", state=JobState.DEPENDENCY),
    job("profiled", state=JobState.PROFILING, running=RUNS),
)


def test_the_queue_of_a_first_plan_has_waiting_and_preemptible_running_jobs() -> None:
    ids = {j.id for j in queue(snapshot(*ALL_KINDS), PlanSettings()).jobs}
    assert ids == {"waits", "runs", "pinned-waits"}


def test_the_queue_of_a_later_plan_has_waiting_jobs_only() -> None:
    ids = {j.id for j in queue(snapshot(*ALL_KINDS, first=False), PlanSettings()).jobs}
    assert ids == {"waits", "pinned-waits"}


def test_a_first_plan_may_reassign_the_gpus_of_queued_running_jobs() -> None:
    assert idle_gpus(snapshot(*ALL_KINDS)) == [4, 2, 4]
    assert idle_gpus(snapshot(*ALL_KINDS, first=False)) == [4, 0, 4]

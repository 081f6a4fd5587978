"""Section 4: service window, sensitivity and its adjustment."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopsd.core.queue.service_window import (
    runnable,
    sensitivities,
    sensitivity,
    sensitivity_adjustment,
    service_window,
)
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, Node, ThroughputTable

V100, T4 = GpuType("v100"), GpuType("t4")
NODES = (
    Node(NodeName("a"), V100, 4, 4),
    Node(NodeName("b"), V100, 8, 0),
    Node(NodeName("c"), T4, 4, 4),
)


def job(job_id: str = "1", **given_values: object) -> Job:
    plain = Job(
        id=JobId(job_id),
        user=UserName("u"),
        submit=0.0,
        wait_seconds=0.0,
        reqs=(1,),
        throughput={V100: ThroughputTable({1: 100.0}, {2: 50.0})},
    )
    return replace(plain, **given_values)


def jobs_of_counts(*smallest: int) -> list[Job]:
    return [job(str(i), reqs=(n, 16)) for i, n in enumerate(smallest)]


def test_the_job_that_crosses_the_line_is_the_last_of_the_window() -> None:
    assert service_window(jobs_of_counts(4, 4, 4, 4, 4), 10) == 3
    assert service_window(jobs_of_counts(4, 6, 4), 10) == 2


def test_a_short_queue_is_entirely_in_the_window() -> None:
    assert service_window(jobs_of_counts(4, 4), 10) == 2
    assert service_window([], 10) == 0


@given(st.lists(st.integers(1, 16), max_size=30), st.integers(1, 60))
def test_the_window_is_the_shortest_that_asks_for_all_gpus(sizes: list[int], gpus: int) -> None:
    inside = service_window(jobs_of_counts(*sizes), gpus)
    assert inside == len(sizes) or sum(sizes[:inside]) >= gpus
    assert inside == 0 or sum(sizes[: inside - 1]) < gpus


@pytest.mark.parametrize(
    ("reqs", "spread", "runs"),
    [((8, 9), False, True), ((9,), False, False), ((12,), True, True), ((13,), True, False)],
)
def test_a_job_runs_in_the_largest_server_or_spread_over_all(
    reqs: tuple[int, ...], spread: bool, runs: bool
) -> None:
    table = ThroughputTable({1: 100.0}, {2: 50.0} if spread else {})
    candidate = job(reqs=reqs, throughput={V100: table})
    assert runnable([candidate], NODES) == ([candidate] if runs else [])


def test_a_job_without_a_speed_for_any_type_of_the_cluster_runs_nowhere() -> None:
    assert runnable([job(throughput={GpuType("a100"): ThroughputTable({1: 1.0})})], NODES) == []
    assert runnable([job(throughput={})], NODES) == []
    assert runnable([job()], ()) == []


def test_sensitivity_is_one_gpu_alone_over_one_gpu_of_two_servers() -> None:
    assert sensitivity(job(), NODES) == 2.0
    measured_beside = job(throughput={V100: ThroughputTable({2: 90.0, 4: 80.0}, {3: 60.0})})
    assert sensitivity(measured_beside, NODES) == 1.5


def test_sensitivity_ignores_server_factors() -> None:
    assert sensitivity(job(server_factor={NodeName("a"): 0.1}), NODES) == 2.0


def test_sensitivity_is_weighted_by_all_gpus_of_the_types() -> None:
    two_types = job(
        throughput={
            V100: ThroughputTable({1: 100.0}, {2: 50.0}),
            T4: ThroughputTable({1: 25.0}, {2: 25.0}),
        }
    )
    assert sensitivity(two_types, NODES) == (12 * 2.0 + 4 * 1.0) / 16


def test_types_that_cannot_be_spread_over_are_excluded_from_sensitivity() -> None:
    tables = {V100: ThroughputTable({1: 100.0}, {2: 50.0}), T4: ThroughputTable({1: 25.0})}
    assert sensitivity(job(throughput=tables), NODES) == 2.0
    assert sensitivity(job(throughput={T4: ThroughputTable({1: 25.0})}), NODES) is None


def test_a_given_sensitivity_takes_precedence() -> None:
    assert sensitivity(job(sensitivity=1.1), NODES) == 1.1


def test_a_mean_of_equal_sensitivities_is_that_sensitivity() -> None:
    """In plain doubles, 1.4 weighted by 7 and 23 is 1.4000000000000001, above a sigma of 1.4."""
    nodes = (Node(NodeName("a"), V100, 7, 0), Node(NodeName("b"), T4, 23, 0))
    tables = {
        V100: ThroughputTable({1: 98.0}, {2: 70.0}),
        T4: ThroughputTable({1: 140.0}, {2: 100.0}),
    }
    assert sensitivity(job(throughput=tables), nodes) == 1.4


def rho(*values: float | None) -> tuple[list[Job], dict[JobId, float | None]]:
    jobs = [job(str(i), sensitivity=value) for i, value in enumerate(values)]
    return jobs, {j.id: value for j, value in zip(jobs, values, strict=True)}


def joining_ids(window: int, idle: int, *values: float | None) -> list[str]:
    jobs, rhos = rho(*values)
    return [j.id for j in sensitivity_adjustment(jobs, window, rhos, idle)]


def test_jobs_join_until_the_window_is_no_more_sensitive_than_the_queue() -> None:
    # Queue 1.5; window 2.0, with job 2 1.7, with job 4 1.525, with job 5 1.42: there it stops.
    assert joining_ids(2, 4, 2.0, 2.0, 1.1, 2.0, 1.0, 1.0, 1.4) == ["2", "4", "5"]


def test_no_job_joins_a_window_that_is_no_more_sensitive_than_the_queue() -> None:
    assert joining_ids(1, 4, 1.0, 2.0, 0.9) == []
    assert joining_ids(2, 4, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1) == []


def test_a_job_as_sensitive_as_the_mean_does_not_join() -> None:
    assert joining_ids(1, 4, 2.0, 1.5, 1.0) == ["2"]


def test_a_job_larger_than_all_idle_gpus_does_not_join() -> None:
    jobs, rhos = rho(2.0, 1.0, 1.1)
    jobs[1] = replace(jobs[1], reqs=(5, 6))
    assert [j.id for j in sensitivity_adjustment(jobs, 1, rhos, idle=4)] == ["2"]
    assert [j.id for j in sensitivity_adjustment(jobs, 1, rhos, idle=5)] == ["1", "2"]


def test_idle_gpus_are_not_reduced_as_jobs_join() -> None:
    jobs, rhos = rho(9.0, 1.0, 1.0, 1.0)
    jobs = [replace(j, reqs=(4,)) for j in jobs]
    assert [j.id for j in sensitivity_adjustment(jobs, 1, rhos, idle=4)] == ["1", "2", "3"]


def test_jobs_of_unknown_sensitivity_count_in_no_mean_and_do_not_join() -> None:
    assert joining_ids(2, 4, 2.0, None, None, 1.0, None, 1.2) == ["3", "5"]
    assert joining_ids(1, 4, None, 1.0, 2.0) == []
    assert joining_ids(1, 4, None, None) == []


@given(st.lists(st.none() | st.floats(0.5, 4.0), min_size=1, max_size=12), st.integers(0, 12))
def test_joining_jobs_are_below_the_queues_mean(values: list[float | None], window: int) -> None:
    jobs, known_rhos = rho(*values)
    window = min(window, len(jobs))
    joiners = sensitivity_adjustment(jobs, window, known_rhos, idle=4)
    rhos = [value for value in values if value is not None]
    assert [j for j in jobs[window:] if j in joiners] == joiners
    assert all(known_rhos[j.id] < sum(rhos) / len(rhos) + 1e-9 for j in joiners)
    if joiners:
        assert sensitivities(joiners, NODES) == {j.id: known_rhos[j.id] for j in joiners}

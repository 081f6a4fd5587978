"""rho by equations 1 and 2, and the example in section 4.3.3 of the Themis paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopsd.model.ids import AppName, GpuType, JobId, NodeName, RackName, UserName
from hopsd.model.job import Job, JobState, Node, ThroughputTable
from hopsd.model.plan import RoundInfo, Snapshot
from hopsd.policies.themis.agents import Agent, Market, Offer, Part, honest
from hopsd.policies.themis.apps import apps_of
from hopsd.policies.themis.finish_time import (
    JobInfo,
    independent_seconds,
    phase_seconds,
    share_seconds,
    shared_seconds,
)

A = GpuType("a")
NO_OFFER = Offer(())


def gpus(*parts: int) -> Offer:
    return Offer(tuple(Part(A, part) for part in parts))


def info(seconds: float, iterations: float, gpus_max: int = 8) -> JobInfo:
    return JobInfo(iterations, seconds, 1.0, gpus_max)


class Example:
    """4 jobs of 80 to 120 s per iteration; 8, 16 and 36 iterations in the three phases."""

    def phases(self) -> int:
        return 3

    def jobs_in_phase(self, phase: int, offer: Offer) -> Sequence[JobInfo]:
        seconds = [[80.0, 100.0, 100.0, 120.0], [100.0, 100.0], [100.0]][phase]
        return [info(speed, (8, 16, 36)[phase]) for speed in seconds]


def example_agent() -> Agent:
    budget = sum(job.work for phase in range(3) for job in Example().jobs_in_phase(phase, NO_OFFER))
    assert budget == 10_000
    return Agent(Example(), 0.0, independent_seconds(budget, 16, 4 * 8, 4.0), NO_OFFER)


def test_times_of_the_example_match_the_papers() -> None:
    agent = example_agent()
    assert agent.independent == 2500.0
    phases = [agent.scheduler.jobs_in_phase(phase, NO_OFFER) for phase in range(3)]
    assert [phase_seconds(jobs, 2) for jobs in phases] == [1600.0, 1600.0, 1800.0]
    assert shared_seconds(0.0, phases, 2) == 5000.0


@pytest.mark.parametrize(
    ("count", "rho"), [(0, inf), (1, 4.0), (2, 2.0), (4, 1.0), (8, 0.5), (16, 0.34)]
)
def test_bids_match_table_3(count: int, rho: float) -> None:
    assert example_agent().rho(gpus(*([count] if count else []))) == rho


def test_kept_gpus_and_restarts_count_in_rho() -> None:
    agent = replace(example_agent(), kept_gpus=gpus(1))
    assert agent.rho(NO_OFFER) == 4.0
    assert agent.rho(gpus(1)) == 2.0
    assert agent.rho(gpus(1), lost_seconds=250.0) == 2.1


def test_the_rho_of_a_single_job_follows_equation_1() -> None:
    """800 s are over, 10 of 20 iterations of 100 s left, S = 1.1 on 4 of at most 8 GPUs, N = 3."""
    seconds = shared_seconds(800.0, [[JobInfo(10, 100.0, 1.1, 8)]], 4)
    assert seconds == pytest.approx(800.0 + 10 * 100.0 * 1.1 / 4)
    assert shared_seconds(0.0, [[JobInfo(10, 100.0, 1.0, 8)]], 16) == 125.0
    assert independent_seconds(2000.0, 64, 8, 3.0) == 2000.0 / 8 * 3
    assert independent_seconds(2000.0, 4, 8, 3.0) == 2000.0 / 4 * 3


@given(
    st.lists(st.tuples(st.floats(1.0, 1e4), st.integers(1, 16)), min_size=1, max_size=8),
    st.integers(1, 64),
)
def test_a_phase_takes_at_least_its_longest_job_and_its_total_work(
    jobs: list[tuple[float, int]], count: int
) -> None:
    """An allocation with one more GPU is never worse either."""
    job_infos = [info(1.0, work, max_gpus) for work, max_gpus in jobs]
    seconds = phase_seconds(job_infos, count)
    assert seconds >= sum(work for work, _ in jobs) / count * (1 - 1e-12)
    assert all(seconds >= job.work / min(count, job.gpus_max) for job in job_infos)
    assert phase_seconds(job_infos, count + 1) <= seconds


@given(st.integers(1, 64), st.integers(1, 128), st.floats(1.0, 50.0))
def test_both_independent_times_agree_if_the_app_can_use_the_whole_cluster(
    cluster: int, max_gpus: int, apps: float
) -> None:
    printed_seconds = independent_seconds(1e4, cluster, max_gpus, apps)
    exact = share_seconds(1e4, cluster, max_gpus, apps)
    assert printed_seconds >= exact * (1 - 1e-12)
    if max_gpus >= cluster:
        assert printed_seconds == pytest.approx(exact)


def slurm_job(name: int, seconds: float, samples: float, phase: int, table: str = "table") -> Job:
    """Return a job of app ``lm``: ``seconds`` per sample on one GPU, 1.25 times that if spread."""
    return Job(
        id=JobId(str(name)),
        user=UserName("u"),
        submit=0.0,
        wait_seconds=0.0,
        reqs=(1, 2, 4, 8),
        throughput={A: ThroughputTable({1: 1 / seconds}, {2: 1 / seconds / 1.25}, table)},
        samples=samples,
        state=JobState.WAITING if phase == 1 else JobState.DEPENDENCY,
        app=AppName("lm"),
        phase=phase,
        contention=4.0,
    )


def slurm_agent(jobs: Sequence[Job], now: float = 0.0) -> Agent:
    nodes = tuple(Node(NodeName(f"n{i}"), A, 8, 8) for i in range(2))
    snapshot = Snapshot(now, RoundInfo(True, 360.0), nodes, tuple(jobs))
    apps = apps_of(snapshot, ())
    return honest(apps[0], Market.from_apps(snapshot, apps), NO_OFFER)


def example_jobs(table: str = "table") -> list[Job]:
    pace = [80.0, 100.0, 100.0, 120.0]
    first = [slurm_job(i, pace_of_job, 8, 1, table) for i, pace_of_job in enumerate(pace)]
    later = [(4, 16, 2), (5, 16, 2), (6, 36, 3)]
    return first + [slurm_job(name, 100.0, samples, phase, table) for name, samples, phase in later]


@pytest.mark.parametrize(
    ("parts", "rho"), [((1,), 4.0), ((2,), 2.0), ((4,), 1.0), ((8,), 0.5), ((8, 8), 0.34)]
)
def test_the_example_runs_as_slurm_jobs(parts: tuple[int, ...], rho: float) -> None:
    """Each job fits on a server of 8, so none is spread even with 16 GPUs."""
    agent = slurm_agent(example_jobs())
    assert agent.independent == pytest.approx(2500.0)
    assert agent.rho(gpus(*parts)) == pytest.approx(rho)


def test_survivors_other_than_the_median_change_the_bid() -> None:
    """The two survivors need 120 and 100 s: phase 3 uses their median, 110 s."""
    jobs = [replace(job, phase=job.phase - 1) for job in example_jobs() if job.phase > 1]
    jobs[0] = slurm_job(4, 120.0, 16, 1)
    jobs[1] = slurm_job(5, 100.0, 16, 1)
    agent = slurm_agent(jobs)
    assert agent.rho(gpus(2)) * agent.independent == pytest.approx(
        16 * (120 + 100) / 2 + 36 * 110 / 2
    )


@pytest.mark.parametrize(
    ("table", "racks", "slowdown"),
    [
        ("table", "rr", 1.25),
        ("table", "rs", 1.25),
        ("assumed", "rr", 1.1),
        ("assumed", "rs", 1.3),
    ],
)
def test_a_slowdown_is_measured_or_follows_from_the_placement(
    table: str, racks: str, slowdown: float
) -> None:
    """One job of 8 GPUs has four on each of two servers."""
    agent = slurm_agent([slurm_job(1, 100.0, 80, 1, table)])
    spread = Offer(tuple(Part(A, 4, RackName(rack)) for rack in racks))
    assert agent.rho(spread) == pytest.approx(slowdown * agent.rho(gpus(8)))


def test_jobs_that_each_fit_in_a_rack_are_not_across_racks() -> None:
    """Each of two jobs of 4 GPUs fits into a rack with 2 and 2 GPUs, or with 3 and 1.

    With 3, 3 and 2 GPUs in three racks, one of the jobs is across racks.
    """
    jobs = [replace(slurm_job(i, 100.0, 80, 1, "assumed"), reqs=(4,)) for i in (1, 2)]
    agent = slurm_agent(jobs)

    def rho(*parts: tuple[int, str]) -> float:
        return agent.rho(Offer(tuple(Part(A, count, RackName(rack)) for count, rack in parts)))

    best = agent.rho(gpus(4, 4))
    assert rho((2, "r"), (2, "r"), (2, "s"), (2, "s")) == pytest.approx(1.1 * best)
    assert rho((3, "r"), (2, "s"), (2, "s"), (1, "r")) == pytest.approx(1.1 * best)
    assert rho((3, "r"), (3, "s"), (2, "t")) == pytest.approx(1.3 * best)


def test_ended_jobs_count_in_the_budget() -> None:
    alone = slurm_agent([slurm_job(1, 100.0, 80, 1)])
    job = replace(slurm_job(1, 100.0, 80, 1), app_gpu_seconds=8000.0)
    assert slurm_agent([job]).independent == pytest.approx(2 * alone.independent)

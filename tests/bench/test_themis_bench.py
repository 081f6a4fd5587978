"""The Themis experiments' own figures, on a timeline worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest
from sim_cases import job

from bench.themis.measure import Liar, measure_changes
from bench.themis.workload import NETWORK, SLOWDOWN, TABLES, apps
from bench.themis.workload import testbed_cluster as sixty_four
from hopsd.model.allocation import Allocation
from hopsd.model.ids import AppName, JobId
from hopsd.model.scenario import Cluster, Workload
from hopsd.policies.themis.agents import Offer, Part
from hopsd.policies.themis.finish_time import JobInfo
from hopsd.sim.metrics import AllocationChange

GPUS = 64


def change(time: float, name: int, **gpus: int) -> AllocationChange:
    return AllocationChange(time, JobId(str(name)), Allocation.of(gpus))


def test_figures_of_two_apps_match_values_by_hand() -> None:
    """App x: jobs 1 and 2, from 0 to 400 s; job 3 by itself, from 100 to 300 s, spread over two
    servers. Present in x's life: 1.5 apps on the mean, in the other's: 2.
    """
    app = AppName("x")
    jobs = (
        replace(job(1, 200.0, 2, workload=NETWORK), app=app),
        replace(job(2, 400.0, 2, workload=NETWORK), app=app),
        job(3, 100.0, 2, submit=100.0, workload=NETWORK),
    )
    timeline = [
        change(0.0, 1, n8=2),
        change(100.0, 1),
        change(100.0, 3, n0=1, n1=1),
        change(200.0, 2, n8=2),
        change(300.0, 3),
        change(400.0, 2),
    ]
    figures = measure_changes(timeline, sixty_four(1), Workload(TABLES, jobs))
    assert figures.rho == pytest.approx([400 / (600 / 4 * 1.5), 200 / (100 / 2 * 2)])
    assert figures.rho_share == pytest.approx([400 / (600 / 4), 200 / (100 / 2)])
    assert figures.score == pytest.approx([1.0, 1 / SLOWDOWN[NETWORK]])
    assert figures.gpu_hours == pytest.approx((2 * 100 + 2 * 200 + 2 * 200) / 3600)
    assert figures.makespan_hours == pytest.approx(400 / 3600)


@pytest.mark.parametrize("times", [1, 2, 4])
def test_the_testbed_shrinks_by_contention(times: int) -> None:
    assert sixty_four(times).gpus == GPUS / times


@pytest.mark.parametrize("kind", [1, 2])
def test_workloads_depend_on_the_seed_and_fit_the_smallest_cluster(kind: int) -> None:
    workload = apps(kind, 20, 0.5, 7)
    assert workload == apps(kind, 20, 0.5, 7)
    assert workload != apps(kind, 20, 0.5, 8)
    smallest: Cluster = sixty_four(4)
    assert all(min(j.reqs) <= smallest.gpus for j in workload.jobs)
    halving_jobs = [j for j in workload.jobs if j.phase > 1]
    assert bool(halving_jobs) == (kind == 2)


class SingleJobApp:
    jobs: ClassVar = [JobInfo(10.0, 1.0, 1.2, 8)]

    def phases(self) -> int:
        return 1

    def jobs_in_phase(self, phase: int, offer: Offer) -> list[JobInfo]:
        return self.jobs


def test_a_liar_understates_one_server_and_overstates_several() -> None:
    liar, gpu_type = Liar(SingleJobApp(), 0.5), sixty_four(1).servers[0].gpu_type
    (dense,) = liar.jobs_in_phase(0, Offer((Part(gpu_type, 2),)))
    (spread,) = liar.jobs_in_phase(0, Offer((Part(gpu_type, 1), Part(gpu_type, 1))))
    assert dense.locality_sensitivity == pytest.approx(0.6)
    assert spread.locality_sensitivity == pytest.approx(1.8)

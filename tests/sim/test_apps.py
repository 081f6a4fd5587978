"""Apps of several jobs: their phases, and how many apps share the cluster."""

from __future__ import annotations

from dataclasses import replace

from sim_cases import cluster, job, workload

from hopsd.model.ids import AppName, UserName
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.policies.registry import get
from hopsd.sim.engine import Simulation, SimulationSettings
from hopsd.sim.study import play


def test_a_phase_begins_after_all_jobs_of_earlier_phases() -> None:
    """Other apps, and other users' apps of the same name, do not wait."""
    app = AppName("lm")
    jobs = [
        replace(job(1, 100.0), app=app, phase=1),
        replace(job(2, 300.0), app=app, phase=1),
        replace(job(3, 50.0), app=app, phase=2),
        replace(job(4, 10.0), app=app, phase=3),
        replace(job(5, 20.0), app=app, phase=2, user=UserName("v")),
        replace(job(6, 30.0), app=app),
    ]
    result = play("sjf", get("sjf"), cluster(n=8), workload(jobs), SimulationSettings())
    assert [o.end for o in result.outcomes] == [100.0, 300.0, 350.0, 360.0, 20.0, 30.0]


def test_the_number_of_present_apps_is_averaged_over_a_jobs_life() -> None:
    """An app of two jobs and a single job: two apps until 100 s, then one until 300 s."""
    app = AppName("lm")
    jobs = [
        replace(job(1, 300.0), app=app),
        replace(job(2, 300.0), app=app),
        job(3, 100.0),
        job(4, 50.0, submit=400.0),
    ]
    settings = SimulationSettings(round_seconds=50.0)
    app_counts: dict[tuple[float, str], float | None] = {}

    def watch(snapshot: Snapshot, plan_settings: PlanSettings) -> Plan:
        app_counts.update({(snapshot.now, j.id): j.contention for j in snapshot.jobs})
        return get("fifo")(snapshot, plan_settings)

    Simulation(cluster(n=4), workload(jobs), watch, settings).run()
    assert app_counts[50.0, "1"] == 2.0
    assert app_counts[200.0, "1"] == 1.5
    assert app_counts[200.0, "2"] == 1.5


def test_gpu_time_of_an_apps_ended_jobs_is_remembered() -> None:
    """The app's first job spends 100 s on 2 GPUs; another user's app of that name is separate."""
    app = AppName("lm")
    jobs = [
        replace(job(1, 200.0, 2), app=app),
        replace(job(2, 300.0), app=app),
        replace(job(3, 300.0), app=app, user=UserName("v")),
    ]
    app_seconds: dict[tuple[float, str], float] = {}

    def watch(snapshot: Snapshot, plan_settings: PlanSettings) -> Plan:
        app_seconds.update({(snapshot.now, j.id): j.app_gpu_seconds for j in snapshot.jobs})
        return get("fifo")(snapshot, plan_settings)

    settings = SimulationSettings(round_seconds=50.0)
    Simulation(cluster(n=4), workload(jobs), watch, settings).run()
    assert app_seconds[50.0, "2"] == 0.0
    assert app_seconds[250.0, "2"] == 200.0
    assert app_seconds[250.0, "3"] == 0.0

"""Jobs that alternate on GPUs within a round: schedules by hand, and general properties."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from click.testing import Result as Outcome
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sim_cases import cluster, job, workload

from hopsd.ctl import cli
from hopsd.ctl.study.simulate import play_all
from hopsd.errors import InputError
from hopsd.model.scenario import Cluster, Workload
from hopsd.policies.hare.schedulers import SCHEDULERS
from hopsd.policies.registry import get
from hopsd.sim.cluster import ClusterSettings
from hopsd.sim.engine import SimulationSettings
from hopsd.sim.study import PolicyResult, play, result_of
from hopsd.sim.turns import LaneSimulation

ROUND = 300.0


def run(
    servers: Cluster,
    load: Workload,
    switch: float,
    policy: str = "hare-dispatch",
    restart: float = 0.0,
) -> PolicyResult:
    settings = SimulationSettings(ROUND, cluster=ClusterSettings(restart))
    turns = LaneSimulation(servers, load, SCHEDULERS[policy], settings, switch)
    return result_of(policy, turns.run(), servers, load)


def ends(result: PolicyResult) -> dict[str, float | None]:
    return {o.id: o.end for o in result.outcomes}


def test_a_single_job_trains_without_interruption() -> None:
    result = run(cluster(a0=1), workload([job(1, 600.0, 1)]), switch=5.0)
    assert ends(result) == {"1": 600.0}
    assert [o.restarts for o in result.outcomes] == [0]


def two(first: float, second: float) -> tuple[Cluster, Workload]:
    """Return two servers and two jobs; a GPU of type b is four times as fast as one of type a.

    The first job needs both GPUs for each of its rounds; the second runs on b alone.
    """
    load = workload([job(1, first, 2), job(2, second, 1)], a=1.0, b=4.0)
    return cluster(a0=1, b0=1), load


def test_a_gpu_trains_another_job_while_a_round_waits_for_its_slow_task() -> None:
    """A task of 240 samples takes 60 s on b and 240 s on a.

    With one job per GPU and round, b would be idle for three quarters of the first job's time.
    """
    servers, load = two(2 * 480.0, 720.0)
    result = run(servers, load, switch=0.0)
    end_by_job = ends(result)
    assert end_by_job["1"] is not None
    assert end_by_job["2"] is not None
    # All work on b alone would take (960 + 720) / 4 = 420 s, but a takes part.
    assert max(end_by_job["1"], end_by_job["2"]) <= 480.0
    gpu_seconds = {o.id: o.gpu_seconds_held for o in result.outcomes}
    assert sum(gpu_seconds.values()) <= 2 * 480.0
    assert any(o.restarts for o in result.outcomes)  # the jobs alternated


def test_a_job_returns_to_its_gpu_in_the_time_of_a_switch() -> None:
    """The second job, of 60 s, precedes the rest of the first job after its first task.

    The second job's first start costs nothing here.
    """
    load = workload([job(1, 600.0, 1), job(2, 60.0, 1, submit=60.0)])
    result = run(cluster(n0=1), load, switch=5.0, restart=30.0)
    assert ends(result) == {"1": 60.0 + 60.0 + 5.0 + 540.0, "2": 120.0}
    assert [o.restarts for o in result.outcomes] == [1, 0]
    assert [o.gpu_seconds_held for o in result.outcomes] == [605.0, 60.0]


def test_every_gpu_of_a_first_round_waits_for_its_process() -> None:
    servers, load = cluster(n0=4), workload([job(1, 2400.0, 4)])
    settings = SimulationSettings(ROUND, cluster=ClusterSettings(profiling_seconds=30.0))
    turns = LaneSimulation(servers, load, SCHEDULERS["hare-dispatch"], settings, 0.0)
    (outcome,) = result_of("hare-dispatch", turns.run(), servers, load).outcomes
    assert (outcome.end, outcome.gpu_seconds_held, outcome.restarts) == (630.0, 2520.0, 0)


def test_a_first_round_on_two_servers_is_not_a_restart() -> None:
    result = run(cluster(n0=1, n1=1), workload([job(1, 1200.0, 2)]), switch=0.0, restart=30.0)
    assert ends(result) == {"1": 600.0}


def test_a_jobs_own_restart_is_paid_once_per_gpu_but_not_in_its_first_round() -> None:
    """The published rule gives a job that is alone the GPU that has been free for longest."""
    load = workload([replace(job(1, 600.0, 1), restart_seconds=7.0)])
    result = run(cluster(n0=3), load, switch=0.0, policy="hare", restart=1000.0)
    assert ends(result) == {"1": 600.0 + 2 * 7.0}


def test_no_switch_begins_before_the_plan_that_decides_it() -> None:
    """The second round's switch is not hidden in the idle time before the job's submission."""
    load = workload([job(1, 1200.0, 2, submit=100.0)])
    result = run(cluster(n0=2), load, switch=40.0)
    assert [o.first_start for o in result.outcomes] == [100.0]
    assert ends(result) == {"1": 700.0}


def drawn_case(data: st.DataObject) -> tuple[Cluster, Workload, float, float]:
    """Draw servers of one type, jobs, a switch time and a restart time."""
    servers = cluster(**{f"n{n}": data.draw(st.integers(1, 3)) for n in range(2)})
    jobs = [
        job(n, data.draw(st.integers(30, 2000)), data.draw(st.integers(1, min(2, servers.gpus))),
            submit=float(data.draw(st.integers(0, 500))))
        for n in range(data.draw(st.integers(1, 4)))
    ]  # fmt: skip
    costs = st.floats(0.5, 50.0)
    return servers, workload(jobs), data.draw(costs), data.draw(costs)


@pytest.mark.slow
@pytest.mark.parametrize("policy", sorted(SCHEDULERS))
@given(data=st.data())
@settings(max_examples=20)
def test_events_before_a_plan_do_not_depend_on_it(policy: str, data: st.DataObject) -> None:
    servers, load, switch, restart = drawn_case(data)
    settings = SimulationSettings(ROUND, cluster=ClusterSettings(restart))
    whole = LaneSimulation(servers, load, SCHEDULERS[policy], settings, switch).run()
    submits = {spec.id: spec.submit for spec in load.jobs}
    assert all(change.time >= submits[change.job] for change in whole.changes)
    plan = data.draw(st.sampled_from([scheduled_plan.time for scheduled_plan in whole.plans]))
    partial = LaneSimulation(
        servers, load, SCHEDULERS[policy], replace(settings, horizon=plan), switch
    ).run()
    assert [c for c in whole.changes if c.time < plan] == [
        c for c in partial.changes if c.time < plan
    ]


@pytest.mark.slow
@pytest.mark.parametrize("policy", sorted(SCHEDULERS))
@given(data=st.data(), switches=st.booleans())
@settings(max_examples=20)
def test_gpus_are_held_for_training_and_complete_switches(
    policy: str, data: st.DataObject, *, switches: bool
) -> None:
    servers, load, switch, restart = drawn_case(data)
    switch, restart, cost = (switch, 0.0, switch) if switches else (0.0, restart, restart)
    result = run(servers, load, switch, policy, restart)
    for spec, outcome in zip(load.jobs, result.outcomes, strict=True):
        changes = (outcome.gpu_seconds_held - spec.samples) / cost
        assert changes == pytest.approx(round(changes), abs=1e-6)
        assert round(changes) >= 0
        assert switches or round(changes) < servers.gpus


@pytest.mark.slow
@pytest.mark.parametrize("policy", sorted(SCHEDULERS))
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    samples=st.integers(100, 20_000),
    submit=st.integers(0, 1000),
    profiling=st.floats(0.0, 100.0),
)
@settings(max_examples=20)
def test_a_single_job_runs_as_in_the_plain_simulation(
    policy: str, sizes: list[int], samples: int, submit: int, profiling: float
) -> None:
    """The cluster has exactly as many GPUs as the job needs."""
    servers = cluster(**{f"n{n}": gpus for n, gpus in enumerate(sizes)})
    load = workload([job(1, samples, servers.gpus, submit=submit)], spread=0.7)
    settings = SimulationSettings(ROUND, cluster=ClusterSettings(30.0, profiling_seconds=profiling))
    turns = LaneSimulation(servers, load, SCHEDULERS[policy], settings, 0.0).run()
    (lane_outcome,) = result_of(policy, turns, servers, load).outcomes
    (plain_outcome,) = play(policy, get(policy), servers, load, settings).outcomes
    assert asdict(lane_outcome) == pytest.approx(asdict(plain_outcome))


@pytest.mark.slow
@given(length=st.floats(1.0, 400.0), first=st.integers(0, 3000))
@example(length=1.4, first=0)
@example(length=1.4, first=3)
@example(length=3.3, first=3)
@settings(max_examples=30)
def test_rounds_of_any_length_end(length: float, first: int) -> None:
    """This includes a round whose start, divided by the length, rounds to less than its number."""
    last_time = [-1.0]

    def advances(now: float, _ended_jobs: int, _jobs: int) -> None:
        assert now > last_time[-1]
        last_time.append(now)

    load = workload([job(1, 10.0 * length, 1, submit=first * length)])
    settings = SimulationSettings(length)
    simulation_end = LaneSimulation(
        cluster(a0=1), load, SCHEDULERS["hare-dispatch"], settings, 0.0, advances
    ).run()
    assert simulation_end.finished == 1
    assert list(simulation_end.rounds) == [
        round(start / length) * length for start in simulation_end.rounds
    ]


@pytest.mark.slow
@pytest.mark.parametrize("policy", sorted(SCHEDULERS))
@given(data=st.data())
@settings(max_examples=25)
def test_no_gpu_is_held_twice_and_all_tasks_are_trained(policy: str, data: st.DataObject) -> None:
    servers = cluster(a0=data.draw(st.integers(1, 3)), b0=data.draw(st.integers(1, 3)))
    jobs = [
        job(n, data.draw(st.integers(30, 2000)), data.draw(st.integers(1, 2)),
            submit=float(data.draw(st.integers(0, 500))))
        for n in range(data.draw(st.integers(1, 5)))
    ]  # fmt: skip
    load = workload(jobs, a=1.0, b=2.0)
    settings = SimulationSettings(ROUND, cluster=ClusterSettings(data.draw(st.floats(0.0, 50.0))))
    if any(min(j.reqs) > max(s.gpus for s in servers.servers) for j in jobs):
        return
    turns = LaneSimulation(
        servers, load, SCHEDULERS[policy], settings, data.draw(st.floats(0.0, 20.0))
    ).run()
    assert turns.finished == len(jobs)
    usage, allocations = Counter[str](), {}
    times = sorted({change.time for change in turns.changes})
    for time in times:
        for change in (c for c in turns.changes if c.time == time):
            usage.subtract(dict(allocations.get(change.job, ())))
            allocations[change.job] = change.placement
            usage.update(dict(change.placement))
        assert all(0 <= usage[s.name] <= s.gpus for s in servers.servers)
    result = result_of(policy, turns, servers, load)
    for spec, outcome in zip(jobs, result.outcomes, strict=True):
        assert outcome.end is not None
        assert outcome.end >= spec.submit + spec.samples / (2.0 * spec.reqs[0]) - 1e-6
        assert outcome.gpu_seconds_held >= spec.samples / 2.0 - 1e-6


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"preemptible": False}, "may not be preempted"),
        ({"phase": 2}, "waits for others of its app"),
        ({"reqs": (9,)}, "fits nowhere"),
    ],
)
def test_jobs_that_cannot_take_turns_are_named(changes: dict[str, object], says: str) -> None:
    load = workload([replace(job(1, 60.0, 1), **changes)])  # type: ignore[arg-type]
    with pytest.raises(InputError, match=f"job 1 .*{says}"):
        run(cluster(n0=1), load, switch=0.0)


def test_a_job_that_cannot_be_spread_is_named() -> None:
    with pytest.raises(InputError, match="job 1 cannot train on several servers"):
        run(cluster(n0=2), workload([job(1, 60.0, 2)], spread=None), switch=0.0)


def simulate(tmp_path: Path, *arguments: str) -> Outcome:
    return CliRunner().invoke(
        cli,
        ["simulate", "--cluster", "paper-64", "--workload", "paper-64", "--jobs", "3",
         "--out", str(tmp_path / "out"), "--switch-cost", "0.01", *arguments],
    )  # fmt: skip


def test_simulate_writes_the_figures_of_hare(tmp_path: Path) -> None:
    result = simulate(tmp_path, "--policy", "hare-eft", "--json")
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)["policies"]["hare-eft"]
    assert figures["avg_jct_h"] > 0
    assert (tmp_path / "out" / "jobs.csv").read_text().count("hare-eft") == 3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--policy", "hops"], "hops has no tasks; choose from hare, hare-eft, hare-dispatch"),
        (["--policy", "hare", "--resume"], "--resume cannot be used with --switch-cost"),
        (["--policy", "hare", "--refresh", "30"], "--refresh cannot be used with --switch-cost"),
        (["--policy", "hare", "--knowledge", "none"], "--knowledge"),
    ],
)
def test_conflicting_options_are_refused(tmp_path: Path, arguments: list[str], says: str) -> None:
    error = simulate(tmp_path, *arguments).exception
    assert isinstance(error, InputError)
    assert says in str(error)


def test_an_interruption_does_not_suggest_the_unsupported_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: LaneSimulation) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LaneSimulation, "run", interrupt)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    result = simulate(tmp_path, "--policy", "hare")
    assert result.exit_code == 130
    assert "interrupted; the same command starts over" in result.output
    assert "--resume" not in result.output


def test_jobs_that_never_ended_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    servers, load = cluster(n0=1), workload([job(1, 6000.0, 1), job(2, 6000.0, 1)])
    settings = SimulationSettings(ROUND, horizon=ROUND)
    partial = result_of(
        "hare",
        LaneSimulation(servers, load, SCHEDULERS["hare"], settings, 0.0).run(),
        servers,
        load,
    )
    monkeypatch.setattr("signal.signal", lambda *_: None)
    play_all(["hare"], lambda _: partial, None, tmp_path)
    assert "hare: 2 jobs never ended" in capsys.readouterr().err

"""Jobs that take turns on GPUs within a round: schedules by hand, and what holds for all."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from click.testing import Result as Outcome
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_cases import cluster, job, workload

from hopsd.ctl import cli
from hopsd.errors import InputError
from hopsd.model.scenario import Cluster, Workload
from hopsd.policies.hare.schedulers import SCHEDULERS
from hopsd.sim.cluster import ClusterSettings
from hopsd.sim.engine import SimulationSettings
from hopsd.sim.study import Result, result_of
from hopsd.sim.turns import Turns

ROUND = 300.0


def run(
    where: Cluster,
    load: Workload,
    switch: float,
    policy: str = "hare-dispatch",
    restart: float = 0.0,
) -> Result:
    own = SimulationSettings(ROUND, cluster=ClusterSettings(restart))
    turns = Turns(where, load, SCHEDULERS[policy], own, switch)
    return result_of(policy, turns.run(), where, load)


def ends(result: Result) -> dict[str, float | None]:
    return {o.id: o.end for o in result.outcomes}


def test_one_job_alone_trains_without_a_break() -> None:
    result = run(cluster(a0=1), workload([job(1, 600.0, 1)]), switch=5.0)
    assert ends(result) == {"1": 600.0}
    assert [o.restarts for o in result.outcomes] == [0]


def two(first: float, second: float) -> tuple[Cluster, Workload]:
    """A GPU of type b is four times as fast as one of type a. The first job needs both for each of
    its rounds; the second runs on b alone.
    """
    load = workload([job(1, first, 2), job(2, second, 1)], a=1.0, b=4.0)
    return cluster(a0=1, b0=1), load


def test_a_gpu_trains_another_job_while_a_round_waits_for_its_slow_task() -> None:
    """Tasks of 240 samples: 60 s on b, 240 s on a. In the rounds of one plan at a time b would be
    idle for three quarters of the first job's time.
    """
    where, load = two(2 * 480.0, 720.0)
    result = run(where, load, switch=0.0)
    both = ends(result)
    assert both["1"] is not None
    assert both["2"] is not None
    # All work on b alone: (960 + 720) / 4 = 420 s; a takes part.
    assert max(both["1"], both["2"]) <= 480.0
    held = {o.id: o.gpu_seconds_held for o in result.outcomes}
    assert sum(held.values()) <= 2 * 480.0
    assert any(o.restarts for o in result.outcomes)  # they have alternated


def test_a_job_comes_back_to_its_gpu_in_the_time_of_a_switch() -> None:
    """The second, of 60 s, comes before what the first has left after its first task. Its first
    start costs nothing here.
    """
    load = workload([job(1, 600.0, 1), job(2, 60.0, 1, submit=60.0)])
    result = run(cluster(n0=1), load, switch=5.0, restart=30.0)
    assert ends(result) == {"1": 60.0 + 60.0 + 5.0 + 540.0, "2": 120.0}
    assert [o.restarts for o in result.outcomes] == [1, 0]
    assert [o.gpu_seconds_held for o in result.outcomes] == [605.0, 60.0]


def test_a_job_s_own_restart_is_paid_once_a_server_and_not_at_its_first() -> None:
    """Two servers with a GPU each; both jobs need two tasks a round and have a process on both."""
    both = [replace(job(n, 600.0, 2), restart_seconds=7.0) for n in (1, 2)]
    cheap = run(cluster(n0=1, n1=1), workload(both), switch=0.0, restart=1000.0)
    free = run(
        cluster(n0=1, n1=1), workload([replace(j, restart_seconds=0.0) for j in both]), switch=0.0
    )
    paid = sum(o.gpu_seconds_held for o in cheap.outcomes) - sum(
        o.gpu_seconds_held for o in free.outcomes
    )
    assert paid == pytest.approx(2 * 7.0)


@pytest.mark.parametrize("policy", sorted(SCHEDULERS))
@given(data=st.data())
@settings(max_examples=25)
def test_no_gpu_is_held_twice_and_all_is_trained(policy: str, data: st.DataObject) -> None:
    where = cluster(a0=data.draw(st.integers(1, 3)), b0=data.draw(st.integers(1, 3)))
    jobs = [
        job(n, data.draw(st.integers(30, 2000)), data.draw(st.integers(1, 2)),
            submit=float(data.draw(st.integers(0, 500))))
        for n in range(data.draw(st.integers(1, 5)))
    ]  # fmt: skip
    load = workload(jobs, a=1.0, b=2.0)
    own = SimulationSettings(ROUND, cluster=ClusterSettings(data.draw(st.floats(0.0, 50.0))))
    if any(min(j.reqs) > max(s.gpus for s in where.servers) for j in jobs):
        return
    made = Turns(where, load, SCHEDULERS[policy], own, data.draw(st.floats(0.0, 20.0))).run()
    assert made.finished == len(jobs)
    used, held = Counter[str](), {}
    times = sorted({change.time for change in made.changes})
    for time in times:
        for change in (c for c in made.changes if c.time == time):
            used.subtract(dict(held.get(change.job, ())))
            held[change.job] = change.placement
            used.update(dict(change.placement))
        assert all(0 <= used[s.name] <= s.gpus for s in where.servers)
    result = result_of(policy, made, where, load)
    for spec, seen in zip(jobs, result.outcomes, strict=True):
        assert seen.end is not None
        assert seen.end >= spec.submit + spec.samples / (2.0 * spec.reqs[0]) - 1e-6
        assert seen.gpu_seconds_held >= spec.samples / 2.0 - 1e-6


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"preemptible": False}, "may not be preempted"),
        ({"phase": 2}, "waits for others of its app"),
        ({"reqs": (9,)}, "fits nowhere"),
    ],
)
def test_jobs_whose_tasks_cannot_take_turns_are_named(
    changed: dict[str, object], says: str
) -> None:
    load = workload([replace(job(1, 60.0, 1), **changed)])  # type: ignore[arg-type]
    with pytest.raises(InputError, match=f"job 1 .*{says}"):
        run(cluster(n0=1), load, switch=0.0)


def test_one_that_cannot_be_spread_is_named() -> None:
    with pytest.raises(InputError, match="job 1 cannot train on several servers"):
        run(cluster(n0=2), workload([job(1, 60.0, 2)], spread=None), switch=0.0)


def simulate(tmp_path: Path, *arguments: str) -> Outcome:
    return CliRunner().invoke(
        cli,
        ["simulate", "--cluster", "paper-64", "--workload", "paper-64", "--jobs", "3",
         "--out", str(tmp_path / "out"), "--switch-cost", "0.01", *arguments],
    )  # fmt: skip


def test_the_command(tmp_path: Path) -> None:
    done = simulate(tmp_path, "--policy", "hare-eft", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)["policies"]["hare-eft"]
    assert told["avg_jct_h"] > 0
    assert (tmp_path / "out" / "jobs.csv").read_text().count("hare-eft") == 3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--policy", "hops"], "hops has no tasks; accepted are hare, hare-eft, hare-dispatch"),
        (["--policy", "hare", "--resume"], "--resume cannot be used with --switch-cost"),
        (["--policy", "hare", "--knowledge", "none"], "--knowledge"),
    ],
)
def test_what_does_not_go_with_it(tmp_path: Path, arguments: list[str], says: str) -> None:
    error = simulate(tmp_path, *arguments).exception
    assert isinstance(error, InputError)
    assert says in str(error)

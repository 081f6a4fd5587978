"""The event loop: hand-computed schedules, planned by the daemon's own round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_cases import cluster, job, workload

from hopsd.model.ids import JobId, NodeName
from hopsd.model.knowledge import Knowledge
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.model.scenario import Cluster, Workload, WorkloadJob
from hopsd.policies.registry import get
from hopsd.sim.cluster import ClusterSettings, Failure
from hopsd.sim.engine import Simulation, SimulationSettings
from hopsd.sim.study import PolicyResult, play


def run(
    policy: str,
    servers: Cluster,
    load: Workload,
    round_seconds: float = 100.0,
    restart: float = 10.0,
) -> PolicyResult:
    settings = SimulationSettings(round_seconds, cluster=ClusterSettings(restart))
    return play(policy, get(policy), servers, load, settings)


def spans(result: PolicyResult) -> dict[str, tuple[float | None, float | None]]:
    return {o.id: (o.first_start, o.end) for o in result.outcomes}


THREE: Sequence[WorkloadJob] = (
    job(1, 300.0, 1),
    job(2, 200.0, 1, submit=1.0),
    job(3, 50.0, 1, submit=2.0),
)


def test_fifo_matches_a_schedule_by_hand() -> None:
    """Runs of 300, 200 and 50 s share one GPU in the order of submission."""
    result = run("fifo", cluster(n0=1), workload(THREE))
    assert spans(result) == {"1": (0.0, 300.0), "2": (300.0, 500.0), "3": (500.0, 550.0)}


def test_sjf_matches_a_schedule_by_hand() -> None:
    """The first job is alone when it starts; the shorter of the two others follows."""
    result = run("sjf", cluster(n0=1), workload(THREE))
    assert spans(result) == {"1": (0.0, 300.0), "3": (300.0, 350.0), "2": (350.0, 550.0)}


def test_srtf_matches_a_schedule_by_hand() -> None:
    """At 100 s the third job (50 s) displaces the first (200 s left of 300).

    At the third's end at 150 s, the first precedes the second (250 s). Its restart costs 10 s, so
    it ends at 360 s.
    """
    load = workload([job(1, 300.0, 1), job(2, 250.0, 1, submit=1.0), job(3, 50.0, 1, submit=2.0)])
    result = run("srtf", cluster(n0=1), load)
    assert spans(result) == {"1": (0.0, 360.0), "3": (100.0, 150.0), "2": (360.0, 610.0)}
    assert [o.restarts for o in result.outcomes] == [1, 0, 0]
    assert result.outcomes[0].wait == 50.0


@pytest.mark.parametrize("policy", ["srtf", "las"])
def test_a_running_job_moves_to_a_faster_gpu_that_becomes_idle(policy: str) -> None:
    """By 1,000 s, the second job has moved to the GPU that is four times as fast, by a restart."""
    load = workload([job(1, 4000.0, 1), job(2, 40_000.0, 1, submit=1.0)], a=1.0, b=4.0)
    result = run(policy, cluster(a0=1, b0=1), load)
    start, end = spans(result)["2"]
    assert start == 1.0
    assert end is not None
    assert end <= 1000.0 + 10.0 + (40_000.0 - 999.0) / 4.0


@pytest.mark.parametrize(
    ("restart_seconds", "end"), [(None, 335.0), (200.0, 525.0), (1000.0, 1000.0)]
)
def test_a_jobs_own_restart_time_decides_whether_it_moves(
    restart_seconds: float | None, end: float
) -> None:
    """At 100 s the fast GPU becomes idle, and the slow job has 900 s left, or 225 s there.

    It moves if a restart takes 10 s or 200 s, and stays if a restart takes 1,000 s.
    """
    slow = replace(job(1, 1000.0, 1), restart_seconds=restart_seconds)
    load = workload([slow, job(2, 400.0, 1)], a=1.0, b=4.0)
    result = run("srtf", cluster(a0=1, b0=1), load)
    assert spans(result) == {"1": (0.0, end), "2": (0.0, 100.0)}


def test_policies_know_a_restart_time_once_the_job_has_reported_it() -> None:
    restart_times: list[dict[str, float]] = []

    def watch(snapshot: Snapshot, settings: PlanSettings) -> Plan:
        restart_times.append({j.id: j.restart_seconds for j in snapshot.jobs})
        return get("fifo")(snapshot, settings)

    load = workload([replace(job(1, 250.0, 1), restart_seconds=7.0), job(2, 250.0, 1)])
    settings = SimulationSettings(100.0, cluster=ClusterSettings(10.0))
    play("watching", watch, cluster(n0=2), load, settings)
    assert restart_times[0] == {"1": 0.0, "2": 0.0}
    assert restart_times[-1] == {"1": 7.0, "2": 10.0}


def test_las_matches_a_schedule_by_hand() -> None:
    """Two jobs of 150 s on one GPU alternate by the round: the one that has run less goes first."""
    load = workload([job(1, 150.0, 1), job(2, 150.0, 1)])
    result = run("las", cluster(n0=1), load)
    # Job 1 runs from 0 to 100, job 2 from 100 to 200. Then both have run 100 s, and the older one
    # goes on: 10 s of restart and 50 s of work, to 260. Job 2 follows with 10 + 50 s, to 320.
    assert spans(result) == {"1": (0.0, 260.0), "2": (100.0, 320.0)}


def test_under_fifo_no_job_overtakes_and_slurm_fills_the_gap() -> None:
    """3 of 4 GPUs are busy for 100 s; the second job wants 4, the third wants 1 for 50 s.

    FIFO keeps the third job behind the second; backfill starts it at once, since it ends before the
    second can start.
    """
    load = workload([job(1, 300.0, 3), job(2, 400.0, 4, submit=1.0), job(3, 50.0, 1, submit=2.0)])
    fifo = spans(run("fifo", cluster(n0=4), load))
    assert fifo == {"1": (0.0, 100.0), "2": (100.0, 200.0), "3": (200.0, 250.0)}
    slurm = spans(run("slurm", cluster(n0=4), load))
    assert slurm == {"1": (0.0, 100.0), "2": (100.0, 200.0), "3": (2.0, 52.0)}


def test_backfill_delays_no_job() -> None:
    """As above, but the third job takes 150 s: it would delay the second, so it waits."""
    load = workload([job(1, 300.0, 3), job(2, 400.0, 4, submit=1.0), job(3, 150.0, 1, submit=2.0)])
    slurm = spans(run("slurm", cluster(n0=4), load))
    assert slurm == {"1": (0.0, 100.0), "2": (100.0, 200.0), "3": (200.0, 350.0)}


def test_conservative_backfill_keeps_every_reservation() -> None:
    """The fourth job fits into the gap before the second job's start.

    The fifth must delay neither the second nor the third job, so it starts at 200 s.
    """
    load = workload(
        [
            job(1, 300.0, 3),  # 3 GPUs for 100 s
            job(2, 400.0, 4, submit=1.0),  # from 100 to 200
            job(3, 600.0, 3, submit=2.0),  # from 200 to 400
            job(4, 98.0, 1, submit=2.0),  # fits next to the first, from 2 to 100
            job(5, 300.0, 1, submit=3.0),  # next to the third, from 200
        ]
    )
    slurm = spans(run("slurm", cluster(n0=4), load))
    assert slurm["4"] == (2.0, 100.0)
    assert slurm["3"] == (200.0, 400.0)
    assert slurm["5"] == (200.0, 500.0)


SMALL_JOBS = st.lists(
    st.tuples(st.integers(1, 400), st.sampled_from([1, 2, 3, 4, 6]), st.integers(0, 300)),
    min_size=1,
    max_size=9,
)
"""Samples, GPUs, and seconds after the previous submission."""


def workload_of_arrivals(arrivals: Sequence[tuple[int, int, int]]) -> Workload:
    submits = accumulate(gap for _, _, gap in arrivals)
    rows = zip(arrivals, submits, strict=True)
    return workload([
        job(i, float(samples), gpus, submit=float(submit))
        for i, ((samples, gpus, _), submit) in enumerate(rows)
    ], b=2.0, spread=0.8, factor={"n1": 0.7})  # fmt: skip


@pytest.mark.long
@pytest.mark.slow
@given(SMALL_JOBS)
@settings(max_examples=40)
def test_conservative_backfill_is_not_delayed_by_later_jobs(
    arrivals: list[tuple[int, int, int]],
) -> None:
    load = workload_of_arrivals([(samples, min(gpus, 4), gap) for samples, gpus, gap in arrivals])
    whole = spans(run("slurm", cluster(n0=4), load))
    for length in range(1, len(arrivals)):
        first = run("slurm", cluster(n0=4), replace(load, jobs=load.jobs[:length]))
        assert spans(first).items() <= whole.items()


@pytest.mark.long
@pytest.mark.parametrize("policy", ["fifo", "sjf", "slurm"])
@given(SMALL_JOBS, st.lists(st.integers(0, 1500), max_size=2))
@settings(max_examples=30)
def test_a_policy_asked_at_every_rounds_start_gives_the_same_run(
    policy: str, arrivals: list[tuple[int, int, int]], failure_times: list[int]
) -> None:
    failures = [
        Failure(float(time), server=NodeName("b0"), seconds=130.0) for time in failure_times
    ]
    plan_times: list[float] = []

    def plan_always(snapshot: Snapshot, plan_settings: PlanSettings) -> Plan:
        plan_times.append(snapshot.now)
        return get(policy)(snapshot, plan_settings)

    servers = cluster(n0=4, n1=4, b0=2)
    rounds = SimulationSettings(50.0, cluster=ClusterSettings(10.0, 100.0))
    ours = play(policy, get(policy), servers, workload_of_arrivals(arrivals), rounds, failures)
    replanned = play(policy, plan_always, servers, workload_of_arrivals(arrivals), rounds, failures)
    assert ours.changes == replanned.changes
    assert ours.plans <= len(plan_times)


def test_rigid_jobs_take_the_lower_median() -> None:
    result = run("fifo", cluster(n0=8), workload([job(1, 80.0, 1, 2, 4, 8)]))
    assert result.outcomes[0].end == 40.0


def test_hops_uses_an_idle_cluster_at_once_and_shares_it_at_the_next_round() -> None:
    """One job takes all 4 GPUs; a second job arrives at 10 s and gets its share at 100 s."""
    load = workload([job(1, 1000.0, 2, 4), job(2, 100.0, 2, 4, submit=10.0)])
    result = run("hops", cluster(n0=4), load)
    first_outcome, two = result.outcomes
    assert first_outcome.first_start == 0.0
    assert two.first_start == 100.0
    assert first_outcome.restarts >= 1
    assert {o.end is not None for o in result.outcomes} == {True}


@pytest.mark.parametrize(
    ("policy", "moves", "ends"), [("hops", 360.0, 690.5), ("hops+", 100.0, 560.5)]
)
def test_a_round_ends_early_if_gpus_are_left_over(policy: str, moves: float, ends: float) -> None:
    """At 100 s two GPUs become idle and no job waits; the other job has 1,802 samples left.

    At the end of the round it has 1,282 left. After its move, it trains 4 samples per second.
    """
    load = workload([job(1, 200.0, 2), job(2, 2000.0, 2, 4, submit=1.0)])
    result = run(policy, cluster(n0=4), load, round_seconds=360.0)
    assert spans(result) == {"1": (0.0, 100.0), "2": (1.0, ends)}
    assert [c.time for c in result.changes if c.job == JobId("2")] == [1.0, moves, ends]


def test_a_round_lasts_a_minute_before_it_ends_early() -> None:
    """The first job ends at 20 s; at 60 s the other one has 1,880 samples left."""
    load = workload([job(1, 40.0, 2), job(2, 2000.0, 2, 4)])
    result = run("hops+", cluster(n0=4), load, round_seconds=360.0)
    assert spans(result)["2"] == (0.0, 60.0 + 10.0 + 1880.0 / 4.0)


@pytest.mark.slow
def test_a_short_job_waits_for_a_sixth_of_a_round_and_a_long_one_for_its_end() -> None:
    """Two jobs of hours hold a GPU each when a job of 30 or 400 s arrives at 10 s."""
    long = [job(1, 20_000.0, 1), job(2, 20_000.0, 1)]
    starts = {}
    for samples in (30.0, 400.0):
        load = workload([*long, job(3, samples, 1, submit=10.0)])
        starts[samples] = spans(run("hops+", cluster(n0=2), load, round_seconds=360.0))["3"][0]
    assert starts == {30.0: 60.0, 400.0: 360.0}


@pytest.mark.parametrize(
    "policy", ["hops", "sia", "sia-hops", "gavel", "gavel-ftf", "gavel-queue", "srtf", "slurm"]
)
def test_every_policy_finishes_every_job_with_valid_plans(policy: str) -> None:
    """Two types, spread jobs, server factors, pinned jobs, arrivals in the middle of a round."""
    jobs = [
        job(i, 200.0 * (1 + i % 5), *((1, 2, 4), (2,), (4, 8), (1, 3), (6,))[i % 5],
            submit=17.0 * i, preemptible=i % 4 != 0)
        for i in range(1, 16)
    ]  # fmt: skip
    load = workload(jobs, a=1.0, b=2.5, spread=0.8, factor={"n0": 0.9, "b1": 1.05})
    result = run(policy, cluster(n0=4, n1=4, b0=4, b1=4), load)
    assert result.unfinished == []
    pinned_outcomes = [o for o, j in zip(result.outcomes, jobs, strict=True) if not j.preemptible]
    assert {o.restarts for o in pinned_outcomes} == {0}


def test_the_same_inputs_give_the_same_run() -> None:
    load = workload([job(i, 100.0 * i, 1, 2, 4, submit=9.0 * i) for i in range(1, 10)])
    first, second = (run("hops", cluster(n0=4, n1=4), load) for _ in range(2))
    assert first.changes == second.changes


def test_a_job_that_fits_nowhere_ends_the_run_unfinished() -> None:
    load = workload([job(1, 10.0, 1), job(2, 10.0, 64)])
    result = run("fifo", cluster(n0=4), load)
    assert result.unfinished == ["2"]


def test_jobs_continue_around_a_lost_server() -> None:
    load = workload([job(1, 4000.0, 4), job(2, 400.0, 4, submit=20.0)])
    failures = (Failure(50.0, server=NodeName("n0"), seconds=500.0),)
    settings = SimulationSettings(100.0, cluster=ClusterSettings(10.0, 100.0))
    result = play("hops", get("hops"), cluster(n0=4, n1=4), load, settings, failures)
    assert result.unfinished == []
    assert not any(
        "n0" in change.placement.nodes for change in result.changes if 50.0 <= change.time < 550.0
    )


def test_a_server_that_fails_again_is_back_after_the_later_repair() -> None:
    """The only server is down from 50 to 150 s and again from 100 to 400 s."""
    failures = (
        Failure(50.0, server=NodeName("n0"), seconds=100.0),
        Failure(100.0, server=NodeName("n0"), seconds=300.0),
    )
    settings = SimulationSettings(50.0, cluster=ClusterSettings(10.0))
    load = workload([job(1, 400.0, 4), job(2, 40.0, 4, submit=60.0)])
    result = play("fifo", get("fifo"), cluster(n0=4), load, settings, failures)
    starts = [change.time for change in result.changes if change.placement]
    assert starts[:2] == [0.0, 400.0]
    assert result.unfinished == []
    assert [state.idle for state in result.rounds[:9]] == [0] * 9
    assert result.summary.avg_fragments == 0.0


@pytest.mark.slow
def test_rounds_and_timeline_count_waiting_equally() -> None:
    """The priority that a policy sees must be the latency ratio that the metrics report."""
    waits: dict[JobId, float] = {}

    def watch(snapshot: Snapshot, settings: PlanSettings) -> Plan:
        waits.update({job.id: job.wait_seconds for job in snapshot.jobs})
        return get("srtf")(snapshot, settings)

    load = workload([job(i, 180.0 * (8 - i), 2, submit=11.0 * i) for i in range(8)])
    result = play("srtf", watch, cluster(n0=4), load, SimulationSettings(60.0))
    for outcome in result.outcomes:
        assert waits[outcome.id] <= outcome.wait + 1e-6
    assert sum(o.restarts for o in result.outcomes) > 0
    last = max(result.outcomes, key=lambda o: o.end or 0.0)
    assert last.restarts > 0
    assert waits[last.id] == pytest.approx(last.wait)


def test_a_scheduler_polling_every_30_seconds_reacts_later() -> None:
    """The first job ends at 40 s; the next one starts at the poll at 60 s, or at once."""
    load = workload([job(1, 40.0, 1), job(2, 40.0, 1, submit=1.0)])
    slow_looks = SimulationSettings(100.0, refresh_seconds=30.0)
    assert spans(play("fifo", get("fifo"), cluster(n0=1), load, slow_looks))["2"] == (60.0, 100.0)
    assert spans(run("fifo", cluster(n0=1), load))["2"] == (40.0, 80.0)


def test_profiling_and_planning_time_count_where_requested() -> None:
    """The job holds its GPU for 25 s of profiling, 5 s of planning and 100 s of training."""

    def slow(snapshot: Snapshot, settings: PlanSettings) -> Plan:
        return replace(get("fifo")(snapshot, settings), seconds={"total": 5.0})

    load = workload([job(1, 100.0, 1)])
    costs = ClusterSettings(10.0, profiling_seconds=25.0)
    with_planning = SimulationSettings(1000.0, cluster=costs, count_planning=True)
    assert spans(play("fifo", slow, cluster(n0=1), load, with_planning))["1"] == (0.0, 130.0)


def test_the_planning_time_of_a_round_is_that_of_its_first_plan() -> None:
    """A policy whose every plan is a first plan may be asked again at the same instant."""

    class Slower:
        every_first = True
        plan_count = 0

        def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:
            self.plan_count += 1
            return replace(
                get("fifo")(snapshot, settings), seconds={"total": float(self.plan_count)}
            )

    load = workload([job(1, 100.0, 1), job(2, 100.0, 1)])
    result = play("slower", Slower(), cluster(n0=1), load, SimulationSettings(1000.0))
    assert [first_plan.seconds for first_plan in result.first_plans] == [1.0]


@pytest.mark.parametrize("policy", ["las", "hops"])
def test_a_run_in_which_jobs_move_forever_ends(policy: str) -> None:
    """A restart takes longer than a round, and two jobs alternate, so that neither ever trains."""
    load = workload([job(1, 500.0, 1), job(2, 500.0, 1, submit=1.0)])
    result = run(policy, cluster(n0=1), load, restart=150.0)
    assert result.unfinished == ["1", "2"]
    assert result.summary.rounds < 200


def test_a_restart_longer_than_a_round_delays_no_job_that_stays() -> None:
    load = workload([job(1, 500.0, 1), job(2, 500.0, 1, submit=1.0)])
    assert spans(run("fifo", cluster(n0=1), load, restart=1e6))["2"] == (500.0, 1000.0)
    failures = [Failure(200.0, job=JobId("1"))]
    rounds = SimulationSettings(100.0, cluster=ClusterSettings(20_000.0))
    delayed_result = play("fifo", get("fifo"), cluster(n0=1), load, rounds, failures)
    assert spans(delayed_result)["1"] == (0.0, 20_700.0)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("policy", ["fifo", "las"])
def test_a_long_first_start_does_not_end_a_run_with_arriving_jobs(policy: str) -> None:
    """A job starts in every round; the first of them begins to train after 60 rounds."""
    load = workload([job(n, 500.0, 1, submit=100.0 * n) for n in range(80)])
    rounds = SimulationSettings(100.0, cluster=ClusterSettings(10.0, profiling_seconds=6000.0))
    result = play(policy, get(policy), cluster(n0=80), load, rounds)
    assert result.unfinished == []


def test_a_simulation_learns_speeds_that_jobs_report() -> None:
    """Nothing is known at first; the true speed of each shape is known once a job has run in it."""
    load = workload([job(1, 600.0, 2), job(2, 300.0, 1, submit=10.0)])
    settings = SimulationSettings(100.0)
    simulation = Simulation(cluster(n0=4), load, get("hops"), settings, learns=Knowledge())
    assert simulation.run().finished == 2
    records = simulation._store.known_tables.records
    assert {(r.gpus, r.nodes, r.per_gpu) for r in records} == {(2, 1, 1.0), (1, 1, 1.0)}

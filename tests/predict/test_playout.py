"""Playouts of small situations whose outcome can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from predict_situations import ROUND, T, job, situation

from hopsd.core.queue.run_time import Expectation
from hopsd.model.arrays import Floats
from hopsd.model.ids import JobId, NodeName
from hopsd.model.job import JobState, ThroughputTable
from hopsd.model.rules import Limit, Rules, ShapeRule
from hopsd.predict.calibration import Group, Kind
from hopsd.predict.capacity import Capacity, PlainJob
from hopsd.predict.limit_share import LimitShares
from hopsd.predict.playout import Playout, draw_sample
from hopsd.predict.predictor import Prediction, Predictor
from hopsd.predict.situation import RunTimeSource, Situation
from hopsd.predict.traits import traits_of


def predict(policy: str, present: Situation) -> dict[tuple[str, str], Prediction]:
    predictor = Predictor(traits_of(policy))
    return {(p.job, p.kind.value): p for p in predictor.all_of(present)}


@pytest.mark.parametrize("policy", ["hops", "hops+", "fifo", "slurm", "sjf", "srtf"])
def test_a_running_job_ends_when_its_samples_are_done(policy: str) -> None:
    predictions = predict(
        policy, situation([job("1", 600.0, 2, gpus_by_node={"n0": 2}, seconds_done=150.0)])
    )
    end = predictions["1", "end"]
    assert end.expected == pytest.approx(1000.0 + 450.0, abs=1.0)
    assert end.low <= end.expected <= end.high
    assert end.progress == pytest.approx(0.25)


@pytest.mark.parametrize("policy", ["fifo", "slurm", "hops-fifo"])
def test_a_waiting_job_starts_when_the_job_before_it_ends(policy: str) -> None:
    jobs = [
        job("1", 300.0, 4, gpus_by_node={"n0": 4}, submit=-10.0, preemptible=False),
        job("2", 200.0, 4, submit=-5.0),
        job("3", 50.0, 4, submit=-1.0),
    ]
    predictions = predict(policy, situation(jobs))
    assert predictions["2", "start"].expected == pytest.approx(1300.0, abs=10.0)
    assert predictions["3", "start"].expected == pytest.approx(1500.0, abs=20.0)


def test_backfill_lets_a_short_job_overtake_only_if_it_delays_nobody() -> None:
    jobs = [
        job("1", 300.0, 3, gpus_by_node={"n0": 3}, submit=-10.0),
        job("2", 200.0, 4, submit=-5.0),
        job("short", 50.0, 1, submit=-2.0),
        job("long", 900.0, 1, submit=-1.0),
    ]
    predictions = predict("slurm", situation(jobs))
    assert predictions["short", "start"].expected == pytest.approx(1000.0, abs=1.0)
    assert predictions["2", "start"].expected == pytest.approx(1300.0, abs=1.0)
    assert predictions["long", "start"].expected >= 1499.0


def test_under_fifo_no_job_overtakes() -> None:
    jobs = [
        job("1", 300.0, 3, gpus_by_node={"n0": 3}, submit=-10.0),
        job("2", 200.0, 4, submit=-5.0),
        job("short", 50.0, 1, submit=-2.0),
    ]
    assert predict("fifo", situation(jobs))["short", "start"].expected >= 1299.0


def test_a_job_that_fits_no_server_of_a_timetable_has_no_start() -> None:
    jobs = [job("1", 100.0, 8)]
    assert ("1", "start") not in predict("slurm", situation(jobs, (4,)))


@pytest.mark.parametrize("policy", ["hops", "hops+", "srtf", "slurm"])
@pytest.mark.parametrize(
    "rules",
    [
        Rules(shape=ShapeRule.NODE),
        Rules(shape=ShapeRule.EVEN, per_node=8),
        Rules(nodes=frozenset({NodeName("n0")})),
    ],
)
def test_a_job_that_never_fits_has_no_start_and_delays_nobody(policy: str, rules: Rules) -> None:
    """It was to start at once, or with the next round, for ever."""
    jobs = [job("1", 100.0, 8, submit=-10.0, rules=rules), job("2", 100.0, 8, submit=-5.0)]
    starts = predict(policy, situation(jobs, (4, 4)))
    assert ("1", "start") not in starts
    assert starts["2", "start"].low == 1000.0


def test_a_preemptive_policy_starts_a_short_job_when_the_round_ends() -> None:
    jobs = [
        job("1", 50_000.0, 4, gpus_by_node={"n0": 4}, submit=-10.0),
        job("2", 60.0, 4, submit=-5.0),
    ]
    start = predict("srtf", situation(jobs))["2", "start"]
    assert start.expected == pytest.approx(1000.0 + ROUND, abs=5.0)


@pytest.mark.parametrize("policy", ["hops", "hops+", "slurm"])
@pytest.mark.parametrize("bound", [{"gpus": 2}, {"count": 2}])
def test_a_job_behind_a_limit_starts_when_it_has_room_and_delays_nobody(
    policy: str, bound: dict[str, int]
) -> None:
    """The account may have two GPUs or jobs: one runs, one more may start, the third when
    the first ends.
    """
    jobs = [
        job("1", 300.0, 1, gpus_by_node={"n0": 1}, submit=-10.0, preemptible=False),
        job("2", 300.0, 1, submit=-9.0),
        job("3", 300.0, 1, submit=-8.0),
        job("other", 300.0, 2, submit=-7.0),
    ]
    limits = (Limit("acc", frozenset(limited_job.id for limited_job in jobs[:3]), **bound),)
    predictions = predict(policy, situation(jobs, limits=limits))
    assert predictions["3", "start"].expected == pytest.approx(1300.0, abs=110.0)
    for name in ("2", "other"):
        assert predictions[name, "start"].expected == pytest.approx(1000.0, abs=2.0)


def test_a_limit_used_up_by_others_leaves_no_start() -> None:
    jobs = [job("1", 300.0, 2, submit=-10.0)]
    limits = (Limit("acc", frozenset({JobId("1")}), gpus=1),)
    assert ("1", "start") not in predict("hops", situation(jobs, limits=limits))


@pytest.mark.parametrize("policy", ["hops", "hops+", "srtf"])
def test_a_job_that_would_run_into_a_reservation_waits_for_its_end(policy: str) -> None:
    """All four GPUs are reserved from 500 s for 1,000 s: 200 s fit before that, 3,600 s do not."""
    jobs = [job("short", 200.0, 2, limit=300.0), job("long", 3000.0, 2, limit=3600.0)]
    with_reservation = replace(situation(jobs), capacity=Capacity(((500.0, -4), (1500.0, 4))))
    predictions = predict(policy, with_reservation)
    assert predictions["short", "start"].expected == pytest.approx(1000.0, abs=2.0)
    assert predictions["long", "start"].expected == pytest.approx(2500.0, abs=110.0)


def test_gpus_return_when_maintenance_ends() -> None:
    """One server is in the snapshot and long full; the other returns in 700 s."""
    jobs = [
        job("1", 90_000.0, 4, gpus_by_node={"n0": 4}, submit=-10.0, preemptible=False),
        job("2", 200.0, 4, submit=-5.0),
    ]
    maintenance = replace(situation(jobs), capacity=Capacity(((700.0, 4),)))
    assert predict("hops", maintenance)["2", "start"].expected == pytest.approx(1700.0, abs=110.0)


def test_plain_jobs_return_their_gpus() -> None:
    """All four GPUs belong to a plain job that ends in 900 s at the latest."""
    situation_of_one = situation([job("1", 200.0, 4)])
    plain = Capacity(plain=(PlainJob(4, 100.0, 1000.0),))
    situation_of_one = replace(
        situation_of_one, gpus=0, fits_now=np.zeros(1, dtype=bool), capacity=plain
    )
    start = predict("hops", situation_of_one)["1", "start"]
    assert 1000.0 < start.low < start.expected < start.high <= 1000.0 + 1100.0


def test_an_elastic_job_takes_more_gpus_when_they_are_free() -> None:
    jobs = [
        job("1", 400.0, 1, 2, 4, gpus_by_node={"n0": 1}),
        job("2", 30.0, 3, gpus_by_node={"n0": 3}),
    ]
    end = predict("hops", situation(jobs))["1", "end"]
    # By the end of the round it has all four: 100 s on one, then 300 s of work on four.
    assert 1000.0 + 90.0 <= end.expected <= 1000.0 + 250.0


def playout_of(situation: Situation) -> Playout:
    arrivals, likeness = np.zeros((2, 0)), np.zeros((2, 0), dtype=int)
    rng = np.random.default_rng(0)
    playout = Playout(
        situation,
        traits_of("hops"),
        draw_sample(situation, 2, arrivals, likeness, rng, LimitShares()),
    )
    playout._plan(np.zeros(2, dtype=bool))
    return playout


def test_a_step_ends_with_the_round() -> None:
    """Regression: steps of 2.5 % of the time ahead, and so the starts, went 65 s past the round."""
    playout = playout_of(situation([job("1", 9e4, 4, gpus_by_node={"n0": 4}), job("2", 9e4, 4)]))
    playout._clock[:], playout._boundary[:] = 2990.0, 3000.0
    assert playout._step()
    assert playout._clock.tolist() == [3000.0, 3000.0]


def test_a_quiet_cluster_takes_one_step_per_event() -> None:
    """Rounds of 100 s change nothing for 90,000 s: both jobs have all GPUs that they can use."""
    playout = playout_of(
        situation(
            [job("1", 9e4, 2, gpus_by_node={"n0": 2}), job("2", 5e4, 2, gpus_by_node={"n0": 2})]
        )
    )
    assert [playout._step() for _ in range(3)] == [True, True, False]
    assert playout._end.tolist() == [[9e4, 5e4]] * 2


def test_samples_give_no_end_until_a_speed_was_measured() -> None:
    """An unmeasured speed may be wrong by a factor of a hundred."""
    new = job("1", 600.0, 2, gpus_by_node={"n0": 2}, seconds_done=150.0)
    guess = ThroughputTable({1: 1.0}, {2: 1.0}, source="assumed")
    new = replace(new, throughput={T: guess})
    assert situation([new]).sources == (RunTimeSource.NOTHING,)
    assert predict("hops", situation([new])) == {}
    with_limit = situation([replace(new, time_limit_seconds=3600.0)])
    assert with_limit.sources == (RunTimeSource.TIME_LIMIT,)
    assert with_limit.progress == (0.25,)
    measured_table = replace(guess, aggregated_source={2: "2 records"})
    assert situation([replace(new, throughput={T: measured_table})]).sources == (
        RunTimeSource.SAMPLES,
    )


def test_a_job_is_learnt_from_once_a_round() -> None:
    """As often as hopsd looks, each prediction of a running job used to be kept until its end."""
    present = situation([job("1", 1e6, 4, gpus_by_node={"n0": 4})])
    predictor = Predictor(traits_of("hops"))
    for look in range(30):
        now = present.now + 30.0 * look
        left = ROUND - 30.0 * look % ROUND
        predictor.all_of(replace(present, now=now, round_left=left))
    rounds = -(-30 * 30 // int(ROUND))
    assert len(predictor._open[JobId("1"), Kind.END]) == rounds


def test_nothing_is_predicted_without_knowledge() -> None:
    unknown = job("1", None, 2, gpus_by_node={"n0": 2})
    unknown_situation = situation([unknown])
    assert unknown_situation.sources == (RunTimeSource.NOTHING,)
    assert predict("hops", unknown_situation) == {}


def test_a_held_job_has_no_start() -> None:
    held_job = replace(job("1", 100.0, 1), state=JobState.HELD)
    assert predict("hops", situation([held_job])) == {}


def test_a_time_limit_bounds_the_end() -> None:
    limited_job = job("1", None, 2, gpus_by_node={"n0": 2}, limit=1000.0, seconds_done=100.0)
    ends = [
        Predictor(traits_of("slurm"), seed=seed).all_of(situation([limited_job]))[0]
        for seed in range(20)
    ]
    assert all(1000.0 < p.expected <= 1000.0 + 900.0 + 1.0 for p in ends)
    assert np.mean([p.high - p.low for p in ends]) > 100.0


def test_past_runs_give_a_distribution() -> None:
    situation_of_one = situation(
        [job("1", None, 2, gpus_by_node={"n0": 2})],
        expected={JobId("1"): Expectation(1000.0, None, 0.5, 2.0, "from 9 runs")},
    )
    end = predict("slurm", situation_of_one)["1", "end"]
    assert 1200.0 < end.low < end.expected < end.high < 4000.0
    assert end.source is RunTimeSource.PAST_RUNS


def by_runs(expectation: Expectation, limits: LimitShares, limit: float, **fields: float) -> Floats:
    """Return the remaining work of a job with past runs and a limit in 16 playouts."""
    present = situation(
        [job("1", None, 2, gpus_by_node={"n0": 2}, limit=limit, **fields)],
        expected={JobId("1"): expectation},
    )
    empty = np.zeros((16, 0))
    rng = np.random.default_rng(1)
    return draw_sample(present, 16, empty, empty.astype(int), rng, limits).work[:, 0]


def exact_limits(share: float) -> LimitShares:
    """Return shares of limits that are all within a tenth of ``share``."""
    limits = LimitShares()
    for k in range(400):
        limits.note(share * np.exp(0.1 * (-1) ** k))
    return limits


def test_a_time_limit_also_informs_about_a_job_with_past_runs() -> None:
    """Past runs took 200 to 5,000 s; if all jobs use half of their limits, this one of 6,000 s
    likely takes 3,000 s. If past runs are all alike, the limit hardly matters.
    """
    wide = Expectation(1000.0, None, 0.2, 5.0, "from 9 runs")
    work = by_runs(wide, exact_limits(0.5), 6000.0)
    assert np.median(work) == pytest.approx(2900.0, rel=0.1)
    assert np.quantile(work, 0.9) / np.quantile(work, 0.1) < 2.0
    narrow = Expectation(1000.0, None, 0.99, 1.01, "from 99 runs")
    assert 1000.0 < np.median(by_runs(narrow, LimitShares(), 6000.0)) < 1100.0


def test_a_limit_is_weighed_against_the_elapsed_time() -> None:
    """After 2,500 of 6,000 s, about 500 s are left."""
    expectation = Expectation(4000.0, None, 0.65, 1.5, "from 9 runs")
    work = by_runs(expectation, exact_limits(0.5), 6000.0, seconds_done=2500.0)
    assert np.median(work) == pytest.approx(500.0, rel=0.3)


def test_past_runs_are_truncated_at_the_limit() -> None:
    long = Expectation(9e4, None, 0.8, 1.2, "from 9 runs")
    assert by_runs(long, LimitShares(), 600.0) == pytest.approx(600.0)


def test_no_end_is_predicted_beyond_the_limit_of_a_never_preempted_job() -> None:
    """This holds however wrong earlier predictions were."""
    predictor = Predictor(traits_of("slurm"))
    predictor.calibration.shifts[Group.END] = 2.5, 2.5
    expectations = {JobId("1"): Expectation(1000.0, None, 0.2, 5.0, "from 9 runs")}
    jobs = [job("1", None, 2, gpus_by_node={"n0": 2}, limit=3000.0)]
    (end,) = predictor.all_of(situation(jobs, expected=expectations))
    assert 2000.0 < end.high <= 1000.0 + 3000.0


def test_the_same_seed_gives_the_same_predictions() -> None:
    jobs = [job(str(i), None, 2, limit=500.0 * (i + 1)) for i in range(6)]
    queue = situation(jobs, (4, 4))
    first = Predictor(traits_of("hops"), seed=3).all_of(queue)
    assert first == Predictor(traits_of("hops"), seed=3).all_of(queue)


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.floats(1.0, 1e5), st.sampled_from([(1,), (2,), (1, 2, 4), (4,), (3, 8)])),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from(["hops", "hops+", "slurm", "fifo", "las"]),
)
def test_intervals_are_ordered_and_not_in_the_past(
    requests: list[tuple[float, tuple[int, ...]]], policy: str
) -> None:
    jobs = [
        job(str(i), seconds, *reqs, submit=-float(i)) for i, (seconds, reqs) in enumerate(requests)
    ]
    queue = situation(jobs, (8, 4))
    for p in Predictor(traits_of(policy)).all_of(queue):
        assert queue.now <= p.low <= p.expected <= p.high < np.inf
        assert p.kind is Kind.START

"""Calibration: intervals have their promised coverage, however wrong the predictions are."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopsd.predict.arrivals import HISTORY_SECONDS, HOURS, MIN_WATCH_SECONDS, Arrivals
from hopsd.predict.calibration import (
    MAX_HISTORY,
    MAX_SHIFT,
    NOMINAL,
    Calibration,
    Class,
    ClassHistory,
    Forecast,
    Group,
    Kind,
    PredictedEvent,
    class_of,
    kaplan_meier,
    scale,
    sort_of,
    split_tails,
    start_event,
    unscale,
)
from hopsd.predict.limit_share import USUAL_SHARE, LimitShares
from hopsd.predict.prior import Residual, learn_prior, prior_of
from hopsd.predict.situation import RunTimeSource
from hopsd.predict.traits import traits_of

CLASS: Class = ("start", "2", "1", "samples")
END_CLASS: Class = ("end", *CLASS[1:])
EXACT = np.zeros(16)


def interval(calibration: Calibration, time: float, centre: float) -> tuple[float, float, float]:
    result = calibration.interval(CLASS, time, EXACT)
    return centre + result.low, centre + result.middle, centre + result.high


def ends(calibration: Calibration, time: float) -> tuple[float, float, float]:
    result = calibration.interval(CLASS, time, EXACT)
    return result.low, result.middle, result.high


@pytest.mark.slow
@pytest.mark.parametrize(("bias", "sigma"), [(0.0, 0.3), (0.7, 0.5), (-1.0, 1.0)])
def test_intervals_are_right_as_often_as_they_promise(bias: float, sigma: float) -> None:
    """Outcomes far ahead become known late, so open predictions are censored."""
    rng = np.random.default_rng(1)
    calibration = Calibration()
    open_: list[tuple[float, Forecast]] = []
    right = []
    for step in range(1500):
        now = 60.0 * step
        for due in [item for item in open_ if item[0] <= now]:
            open_.remove(due)
            true = scale(due[0] - due[1].time)
            if due[1].time > 60.0 * 500:
                right.append(due[1].low <= true <= due[1].high)
            calibration.resolve(due[1], due[0])
        calibration.begin(now)
        centre = scale(1800.0)
        low, _, high = interval(calibration, now, centre)
        forecast = Forecast(Kind.START, now, centre, low, high)
        calibration.record(CLASS, forecast)
        open_.append((now + unscale(centre + bias + sigma * rng.standard_normal()), forecast))
    assert NOMINAL - 0.06 < np.mean(right) < NOMINAL + 0.06


def test_open_predictions_widen_the_intervals() -> None:
    """Half of the predictions of 10 minutes came true at once; the others are hours overdue."""
    calibration = Calibration()
    centre = scale(600.0)
    for i in range(200):
        time = 700.0 * i
        calibration.begin(time)
        forecast = Forecast(Kind.START, time, centre, centre, centre)
        calibration.record(CLASS, forecast)
        if i % 2:
            calibration.resolve(forecast, time + 600.0)
    calibration.begin(200_000.0)
    assert unscale(centre + calibration.interval(CLASS, 200_000.0, EXACT).high) > 15_000.0


def test_a_queue_that_errs_together_counts_as_few_predictions() -> None:
    """After one hour with 20 jobs per minute, all 3 times as late as predicted, the prior rules.

    Days of such errors, one hour apart, replace it.
    """

    def high(times: Sequence[float], jobs: int) -> float:
        calibration = Calibration({CLASS[:depth]: [-0.1, 0.0, 0.1] for depth in (2, 3, 4)})
        centre = scale(3600.0)
        for now in times:
            calibration.begin(now)
            for _ in range(jobs):
                forecast = Forecast(Kind.START, now, centre, centre, centre)
                calibration.record(CLASS, forecast)
                calibration.resolve(forecast, now + 3 * 3600.0)
        calibration.begin(1e7)
        calibration.shifts[Group.START] = 0.0, 0.0
        return calibration.interval(CLASS, 1e7, EXACT).middle

    assert high([60.0 * i for i in range(60)], 20) == pytest.approx(0.0, abs=0.11)
    assert high([3600.0 * i for i in range(80)], 20) > 1.0


def test_overdue_predictions_count_as_late_at_once() -> None:
    calibration = Calibration()
    calibration.begin(0.0)
    overdue_forecast = Forecast(Kind.END, 0.0, scale(600.0), scale(500.0), scale(700.0))
    calibration.record(END_CLASS, overdue_forecast)
    calibration.begin(600.0)
    assert calibration.shifts[Group.END][1] == 0.0
    calibration.begin(800.0)
    first, last = calibration.shifts[Group.END]
    assert first < 0.0 < last
    calibration.resolve(overdue_forecast, 900.0)  # already judged
    calibration.begin(1e6)
    assert calibration.shifts[Group.END] == (first, last)


def shifts_of_a_queue(
    classes: Sequence[Class], others: Sequence[Class] = (), before: float = 0.0
) -> tuple[float, float]:
    """Return the shifts after 12 h of 6-minute rounds that each predict 20 starts per class 3 h
    ahead. In one hour of five, all starts come later than their intervals. One start of each of the
    ``others`` is predicted ``before`` seconds earlier.
    """
    calibration = Calibration()
    centre = scale(10_800.0)
    for time in range(0, 43_200, 360):
        calibration.begin(time)
        late = 5_400.0 if time // 3_600 % 5 == 4 else 0.0
        for key in others:
            calibration.record(key, Forecast(Kind.START, time - before, centre, 0.0, scale(9e9)))
        for key in classes:
            for _ in range(20):
                forecast = Forecast(Kind.START, time, centre, scale(7_200.0), scale(14_400.0))
                calibration.record(key, forecast)
                calibration.resolve(forecast, time + 10_800.0 + late)
    calibration.begin(1e6)
    return calibration.shifts[Group.START]


def test_interval_ends_do_not_swing_with_a_long_queue() -> None:
    """2,400 starts are judged as the few that are independent in 12 h, not as thousands."""
    low, high = shifts_of_a_queue([CLASS])
    assert -0.5 < low < 0.0 < high < 0.5


@pytest.mark.slow
def test_a_queue_of_several_classes_errs_together() -> None:
    """Five times as many simultaneous starts move the ends by at most the root of five."""
    classes: list[Class] = [("start", "2", "1", "samples", str(sort)) for sort in range(5)]
    single, several = shifts_of_a_queue([CLASS]), shifts_of_a_queue(classes)
    ratio = np.divide(several, single)
    assert (ratio > 1.0).all()
    assert (ratio < 5.0**0.5 + 0.2).all()


@pytest.mark.slow
@pytest.mark.parametrize(("event", "before"), [("submission", 20.0), ("restart", 0.0)])
def test_starts_are_judged_separately_by_event(event: str, before: float) -> None:
    """A job that was submitted just before each round, or forty stopped ones that wait as well,
    once made the ends of all other starts move much less.
    """
    others: list[Class] = [(event, "2", "1", "samples", str(sort)) for sort in range(40)]
    alone = shifts_of_a_queue([CLASS])
    assert shifts_of_a_queue([CLASS], others, before) == pytest.approx(alone)


def test_each_interval_end_is_judged_when_it_has_passed() -> None:
    """Otherwise, of two equal ones known at 700, the one resolved at 550 would count first."""
    calibration = Calibration()
    calibration.begin(0.0)
    right = Forecast(Kind.END, 0.0, scale(600.0), scale(500.0), scale(700.0))
    calibration.record(END_CLASS, right)
    calibration.resolve(right, 550.0)
    tail_flags = []
    for now in (490.0, 690.0, 710.0):
        calibration.begin(now)
        tail_flags.append([shift < 0.0 for shift in calibration.shifts[Group.END]])
    assert tail_flags == [[False, False], [True, False], [True, True]]


def test_a_cancelled_job_teaches_nothing() -> None:
    calibration, plain = Calibration(), Calibration()
    for i in range(100):
        for learner in (calibration, plain):
            learner.begin(3600.0 * i)
            forecast = Forecast(Kind.START, 3600.0 * i, 4.0, 3.0, 5.0)
            learner.record(CLASS, forecast)
            learner.resolve(forecast, 3600.0 * i + unscale(4.0 + i / 100.0))
        cancelled_forecast = Forecast(Kind.START, 3600.0 * i, 4.0, 3.0, 5.0)
        calibration.record(("start", "2", "1", "gone"), cancelled_forecast)
        calibration.forget(cancelled_forecast)
    assert ends(calibration, 1e7) == pytest.approx(ends(plain, 1e7), abs=0.02)


def test_only_the_newest_predictions_are_kept() -> None:
    history = ClassHistory()
    first = Forecast(Kind.END, 0.0, 1.0, 0.0, 2.0)
    first.keep(history)
    for i in range(MAX_HISTORY):
        history.add(1.0, 1.0, float(i), 1.0)
    first.weigh(0.5)
    first.resolve(100.0)
    values, weights, true = history.residuals(0.0)
    assert sorted(values.tolist()) == list(map(float, range(MAX_HISTORY)))
    assert weights.min() == true.min() == 1.0
    assert [row[0] for row in history.outcomes(2)] == [MAX_HISTORY - 2.0, MAX_HISTORY - 1.0]


def test_kaplan_meier_of_complete_data_is_the_plain_quantile() -> None:
    values = np.arange(1.0, 101.0)
    low, mid, high = kaplan_meier(values, np.ones(100), np.ones(100), (0.1, 0.5, 0.9))
    assert (low, mid, high) == (10.0, 50.0, 90.0)


def test_kaplan_meier_matches_values_by_hand() -> None:
    """Deaths at 1 and 3 of 4 patients, one lost at 2: survival 3/4 after 1, 3/8 after 3."""
    values, true = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 0.0, 1.0, 0.0])
    assert kaplan_meier(values, np.ones(4), true, (0.25, 0.5, 0.625)) == (1.0, 3.0, 3.0)


@given(st.floats(0.0, 1e6))
def test_the_scale_is_invertible(seconds: float) -> None:
    assert unscale(scale(seconds)) == pytest.approx(seconds, abs=1e-6, rel=1e-9)


def test_the_state_survives_a_restart() -> None:
    calibration = Calibration()
    for i in range(300):
        now = 1000.0 * i
        calibration.begin(now)
        forecast = Forecast(Kind.START, now, 3.0, 2.0, 4.0)
        calibration.record(CLASS, forecast)
        calibration.resolve(forecast, now + unscale(3.0 + i / 100.0))
    restored_calibration = Calibration()
    restored_calibration.restore(json.loads(json.dumps(calibration.as_dict())))
    calibration.begin(1e9)
    assert restored_calibration.shifts == calibration.shifts
    assert ends(restored_calibration, 1e9) == pytest.approx(ends(calibration, 1e9), abs=1e-3)


@pytest.mark.parametrize(
    "damaged_state",
    [
        {},
        {"shifts": {"start": [7.0, 0.0], "end": "x", "never": [0.1, 0.1]}},
        {"shifts": None, "outcomes": 3},
        {"shifts": [1], "outcomes": [[0.0, 1.0]]},
        {
            "outcomes": {
                "start/1": "x",
                "?": [[1.0, 1.0]],
                "end/1": [[1.0], [99.0, 1.0], [0.0, 2.0]],
            }
        },
    ],
)
def test_a_damaged_state_is_ignored(damaged_state: dict[str, object]) -> None:
    calibration = Calibration()
    calibration.restore(damaged_state)
    assert calibration.as_dict() == Calibration().as_dict()


@pytest.mark.parametrize(
    ("share_below", "share_above", "tails"),
    [
        (0.5, 0.5, (0.1, 0.1)),
        (0.0, 0.3, (0.0, 0.2)),
        (0.3, 0.04, (0.16, 0.04)),
        (0.05, 0.1, (0.05, 0.1)),
    ],
)
def test_an_end_compensates_for_what_the_other_cannot_exclude(
    share_below: float, share_above: float, tails: tuple[float, float]
) -> None:
    assert split_tails(share_below, share_above) == pytest.approx(tails)


def of_outcomes(late: int, residual: float = 1.0) -> Calibration:
    """Return a calibration after 200 starts: ``late`` of every 20 are late, the others exact."""
    calibration = Calibration()
    for i in range(200):
        calibration.begin(36_000.0 * i)
        forecast = Forecast(Kind.START, 36_000.0 * i, 3.0, 2.9, 9.0)
        calibration.record(CLASS, forecast)
        calibration.resolve(
            forecast,
            forecast.time + unscale(3.0 + (residual * (1 + i / 2e3) if i % 20 < late else 0.0)),
        )
    calibration.begin(1e9)
    calibration.shifts[Group.START] = 0.0, 0.0
    return calibration


def test_a_point_mass_does_not_widen_intervals_too_much() -> None:
    """Regression: it covered 94 % if 30 % are late: equal tails exclude nothing below the mass."""
    result = of_outcomes(6).interval(CLASS, 1e9, EXACT)
    assert (result.low, result.middle) == pytest.approx((0.0, 0.0), abs=1e-9)
    late = np.sort([1.0 * (1 + i / 2e3) for i in range(200) if i % 20 < 6])
    assert np.mean(late > result.high) * 0.3 == pytest.approx(0.2, abs=0.01)
    assert result.tails == pytest.approx((0.0, 0.2))
    assert not result.sure


def test_predictions_that_mostly_come_true_exactly_are_certain() -> None:
    result = of_outcomes(3).interval(CLASS, 1e9, EXACT)
    assert result.sure
    assert (result.low, result.high) == pytest.approx((0.0, 0.0), abs=1e-9)
    assert not of_outcomes(6, 0.05).interval(CLASS, 1e9, EXACT, margin=0.01).sure
    assert of_outcomes(6, 0.05).interval(CLASS, 1e9, EXACT, margin=0.1).sure


def test_ends_of_certain_predictions_move_separately() -> None:
    """Half of the certain ones are late: later ones get a width, and others keep theirs."""
    calibration = of_outcomes(3)
    assert calibration.interval(CLASS, 1e9, EXACT).high == pytest.approx(0.0, abs=1e-9)
    for i in range(100):
        forecast = Forecast(Kind.START, 2e9 + 1e6 * i, 1.0, 1.0, 1.0, tails=(0.0, 0.15), sure=True)
        calibration.record(("start", "3", "1", "samples"), forecast)
        calibration.begin(forecast.time + (9e5 if i % 2 else 10.0))
        calibration.resolve(forecast, forecast.time + 20.0)
    assert calibration.shifts[Group.START] == (0.0, 0.0)
    assert calibration.shifts[Group.SURE_START][1] > 0.5
    assert calibration.interval(CLASS, 1e9, EXACT).high > 0.9


def test_ends_move_beyond_all_outcomes() -> None:
    """Regression: quantiles of outcomes bounded the ends, however often these were wrong."""
    calibration = Calibration({CLASS[:depth]: [-1.0, -0.5, 0.0, 0.5, 1.0] for depth in (2, 3, 4)})
    usual = calibration.interval(CLASS, 0.0, EXACT)
    calibration.shifts[Group.START] = 0.0, MAX_SHIFT
    new_interval = calibration.interval(CLASS, 0.0, EXACT)
    assert new_interval.low == usual.low
    assert new_interval.high > 1.5 * usual.high
    calibration.shifts[Group.START] = -MAX_SHIFT, -MAX_SHIFT
    assert calibration.interval(CLASS, 0.0, EXACT).high == 0.0


def test_shifts_stay_within_bounds() -> None:
    calibration = Calibration()
    for low, bound in ((0.0, -MAX_SHIFT), (5.0, MAX_SHIFT)):
        for i in range(300):
            forecast = Forecast(Kind.END, 1e6 * i, 1.0, low, 9.0)
            calibration.record(END_CLASS, forecast)
            calibration.resolve(forecast, forecast.time + 10.0)
            calibration.begin(forecast.time + 9e5)
        assert calibration.shifts[Group.END][0] == bound


def test_every_published_interval_counts_equally() -> None:
    """Half of them begin too late, but by weight less than a tenth, since they are of one job."""
    calibration = Calibration()
    for i in range(400):
        time = 1e5 * i
        right = Forecast(Kind.END, time, 9.0, 1.0, 9.5)
        early_forecast = Forecast(Kind.END, time, 9.0, 8.0, 9.5)
        calibration.record(("end", "4", "3", "samples"), right)
        calibration.record(
            ("end", "4", "3", "samples"),
            early_forecast,
            [Forecast(Kind.END, time - 9e3, 9.0, 8.0, 9.5)],
        )
        assert early_forecast.weight < 0.11 * right.weight
        for forecast in (right, early_forecast):
            calibration.resolve(forecast, time + 600.0)
        calibration.begin(time + 9e4)
    assert calibration.shifts[Group.END][0] == MAX_SHIFT


def test_shares_of_time_limits_are_learnt() -> None:
    rng = np.random.default_rng(0)
    shares = LimitShares()
    assert shares.median == pytest.approx(USUAL_SHARE)
    for value in np.exp(rng.normal(np.log(0.1), 0.3, 300)):
        shares.note(float(value))
    assert shares.median == pytest.approx(0.1, rel=0.1)
    shares_of_limit = shares.draw(np.array([0.0, 0.5, 1.0]), 2000, rng)
    assert np.median(shares_of_limit[:, 0]) == pytest.approx(0.1, rel=0.15)
    assert (shares_of_limit[:, 1] >= 0.5).all()
    assert (shares_of_limit <= 1.0).all()


@pytest.mark.parametrize("share", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_shares_teach_nothing(share: float) -> None:
    shares = LimitShares()
    shares.note(share)
    assert shares == LimitShares()


DAMAGED_MOMENTS: list[object] = [
    None,
    [5.0],
    {"jobs": 20.0, "total": -10.0},
    {"jobs": 0.0, "total": 0.0, "squares": 0.0},
    {"jobs": 20.0, "total": 10.0, "squares": 30.0},
    {"jobs": 20.0, "total": -20.0, "squares": 10.0},
    {"jobs": 20.0, "total": float("nan"), "squares": 30.0},
    {"jobs": 1e9, "total": -1e9, "squares": 2e9},
]


@pytest.mark.parametrize("state", DAMAGED_MOMENTS)
def test_damaged_shares_of_limits_are_skipped(state: object) -> None:
    shares = LimitShares()
    shares.restore(state)
    assert shares == LimitShares()


def test_arrivals_are_counted_after_a_minimum_of_observation() -> None:
    arrivals = Arrivals()
    for i in range(100):
        arrivals.note(30.0 * i)
    assert Arrivals().per_second(1e9) == 0.0
    assert arrivals.per_second(MIN_WATCH_SECONDS - 1.0) == 0.0
    assert arrivals.per_second(3000.0) == pytest.approx(1 / 30.0, rel=0.05)
    times, like = arrivals.draw(3000.0, 3600.0, 5, 8, np.random.default_rng(0))
    assert np.isfinite(times).sum(axis=1).mean() == pytest.approx(100, rel=0.2)
    assert like.min() >= 0
    assert like.max() < 5


def test_one_job_that_waits_long_counts_as_few_predictions() -> None:
    """In 200 rounds its start is expected in 10 minutes but comes hours late: the time ahead, or
    waited, doubles seven times.
    """
    calibration = Calibration()
    centre = scale(600.0)
    forecasts: list[Forecast] = []
    for i in range(200):
        calibration.begin(360.0 * i)
        forecast = Forecast(Kind.START, 360.0 * i, centre, centre, centre)
        calibration.record(CLASS, forecast, forecasts)
        forecasts.append(forecast)
    assert 2.0 < sum(kept_forecast.weight for kept_forecast in forecasts) < 8.0


def test_a_start_is_corrected_only_if_outcomes_are_clear() -> None:
    """Half are on time. The median of ends is always corrected, except of those by past runs."""
    for kind, source, middle in (
        (Kind.START, "samples", 0.0),
        (Kind.END, "time limit", 1.0),
        (Kind.END, "past runs", 0.0),
    ):
        calibration = Calibration()
        key: Class = (kind.value, "2", "1", source)
        for i in range(200):
            time = 36_000.0 * i
            calibration.begin(time)
            forecast = Forecast(kind, time, 3.0, 3.0, 3.0)
            calibration.record(key, forecast)
            calibration.resolve(forecast, time + unscale(3.0 + (1.0 if i % 20 < 11 else 0.0)))
        calibration.begin(1e9)
        assert calibration.interval(key, 1e9, EXACT).middle == pytest.approx(middle, abs=0.01)


def test_waiting_jobs_are_classified() -> None:
    assert sort_of(wide=False, wait_seconds=10.0, seconds_ahead=20.0) == "narrow"
    assert sort_of(wide=True, wait_seconds=30.0, seconds_ahead=20.0) == "wide overdue"


@pytest.mark.parametrize("event", [PredictedEvent.SUBMISSION, PredictedEvent.RESTART])
def test_three_classes_of_starts_are_learnt_separately(event: PredictedEvent) -> None:
    """Starts of one event come early; starts of jobs that have waited come when expected."""
    keys = [
        class_of(start_kind, 3600.0, 0.1, RunTimeSource.SAMPLES, 60.0, 360.0, "narrow")
        for start_kind in (PredictedEvent.START, event)
    ]
    calibration = Calibration()
    centre = scale(3600.0)
    for i in range(100):
        time = 1e5 * i
        calibration.begin(time)
        for key, seconds in zip(keys, (3600.0, 360.0), strict=True):
            forecast = Forecast(Kind.START, time, centre, centre - 0.1, centre + 0.1)
            calibration.record(key, forecast)
            calibration.resolve(forecast, time + seconds)
    calibration.begin(1e8)
    assert calibration.shifts[Group.START][0] < 0.0 < calibration.shifts[Group(event.value)][0]
    start, event_middle = (calibration.interval(key, 1e8, EXACT).middle for key in keys)
    assert (start, event_middle) == pytest.approx((0.0, scale(360.0) - centre))


def test_starts_are_assigned_to_classes() -> None:
    assert start_event(has_run=False, wait_seconds=0.0) is PredictedEvent.SUBMISSION
    assert start_event(has_run=False, wait_seconds=3600.0) is PredictedEvent.START
    assert start_event(has_run=True, wait_seconds=0.0) is PredictedEvent.RESTART


def a_week(days: int) -> Arrivals:
    """Return arrivals of 40 jobs between 9 and 10 each day, and of one in every other hour."""
    arrivals = Arrivals()
    arrivals.watch(0.0)
    for hour in range(HOURS * days):
        jobs = 40 if hour % HOURS == 9 else 1
        for i in range(jobs):
            arrivals.note(3600.0 * (hour + (i + 0.5) / jobs))
    arrivals.watch(3600.0 * HOURS * days)
    return arrivals


def test_expected_arrivals_follow_the_hour_of_the_day() -> None:
    """At 8:30 on the eighth day: about one job in half an hour, then nearly 40 in an hour."""
    arrivals = a_week(7)
    now = 7 * 86400.0
    for half in range(18):
        now = 7 * 86400.0 + 1800.0 * half
        if half % 2:
            arrivals.note(now)
    arrivals.watch(now)
    times, _ = arrivals.draw(now, 7200.0, 5, 200, np.random.default_rng(0))
    assert arrivals.by_hour
    assert (times < 1800.0).sum(axis=1).mean() < 3.0
    assert ((times >= 1800.0) & (times < 5400.0)).sum(axis=1).mean() == pytest.approx(33, abs=5)
    assert ((times >= 5400.0) & (times < 7200.0)).sum(axis=1).mean() < 3.0


def test_hours_are_distinguished_after_three_days() -> None:
    assert not a_week(2).by_hour
    assert HISTORY_SECONDS == 3 * 86400.0
    young = a_week(2)
    now = 2 * 86400.0
    times, _ = young.draw(now, 7200.0, 5, 200, np.random.default_rng(0))
    assert np.isfinite(times).sum(axis=1).mean() == pytest.approx(2.0, abs=0.5)


def test_few_submissions_hardly_differ_from_the_mean() -> None:
    """One job in three days says little about its hour."""
    arrivals = Arrivals()
    arrivals.watch(0.0)
    arrivals.note(3.5 * 3600.0)
    arrivals.watch(4 * 86400.0)
    usual = arrivals._usual()
    assert usual.max() / usual.min() < 1.3


def test_hourly_counts_survive_a_restart() -> None:
    arrivals, restored_arrivals = a_week(4), Arrivals()
    restored_arrivals.restore(json.loads(json.dumps(arrivals.as_dict())))
    assert restored_arrivals.by_hour
    assert restored_arrivals.as_dict() == arrivals.as_dict()
    for damaged_state in (None, 3, {}, {"counts": [1.0], "seconds": [1.0]},
                    {"counts": ["x"] * HOURS, "seconds": [-1.0] * HOURS}):  # fmt: skip
        young = Arrivals()
        young.restore(damaged_state)
        assert young.as_dict() == Arrivals().as_dict()


def test_arrivals_just_after_a_restart_follow_the_usual_hour() -> None:
    """Regression: no arrivals were expected for half an hour."""
    arrivals = Arrivals()
    arrivals.restore(a_week(7).as_dict())
    now = 7 * 86400.0 + 9 * 3600.0
    arrivals.watch(now)
    times, _ = arrivals.draw(now, 7200.0, 5, 200, np.random.default_rng(0))
    assert (times < 3600.0).sum(axis=1).mean() == pytest.approx(33, abs=5)
    assert ((times >= 3600.0) & (times < 7200.0)).sum(axis=1).mean() < 3.0


@pytest.mark.parametrize("seconds", [600.0, 3600.0, 7199.0, 7200.0, 7300.0, 5.5 * 86400.0])
def test_a_clock_that_is_set_back_brings_no_jobs(seconds: float) -> None:
    """Set back to nearly an hour before the restart, thousands of jobs per hour were expected;
    to an hour before it, predictions failed.
    """
    arrivals = Arrivals()
    arrivals.restore(a_week(7).as_dict())
    now = 7 * 86400.0 + 9 * 3600.0
    arrivals.watch(now)
    usual = arrivals.per_second(now)
    for half in (1, 2):
        arrivals.note(now + 1800.0 * half)
    later = now + 3600.0 - seconds
    arrivals.watch(later)
    times, _ = arrivals.draw(later, 7200.0, 5, 50, np.random.default_rng(0))
    assert 0.0 < arrivals.per_second(later) <= 1.2 * usual
    assert np.isfinite(times).any()


@pytest.mark.parametrize("kind", Kind)
def test_a_clock_that_is_set_back_spoils_no_interval(kind: Kind) -> None:
    """Predictions got negative weights, of which one outweighed all others of its class."""
    key = CLASS if kind is Kind.START else END_CLASS
    rng = np.random.default_rng(0)
    calibration = Calibration()
    kept: list[Forecast] = []
    now = 1e6
    for number in range(60):
        now += 360.0 if number != 30 else -86400.0
        calibration.begin(now)
        forecast = Forecast(kind, now, 3.0, 2.0, 4.0)
        calibration.record(key, forecast, kept)
        kept = [forecast] if 28 <= number < 32 else []
        assert forecast.weight >= 0.0
        assert forecast.move >= 0.0
        calibration.resolve(forecast, now + unscale(3.0 + rng.normal() / 2))
    calibration.begin(now + 1e5)
    result = calibration.interval(key, now + 1e5, EXACT)
    assert result.low < -0.2
    assert result.high > 0.2


def test_the_prior_contains_every_family() -> None:
    for policy in ("hops", "slurm", "srtf"):
        prior = prior_of(traits_of(policy))
        assert {key[0] for key in prior} == set(PredictedEvent)
        assert all(list(values) == sorted(values) for values in prior.values())


def test_intervals_narrow_as_playouts_agree() -> None:
    """In a long queue run times average out: playouts differ by less, and so do outcomes.

    Regression: all that differed by more than a factor of e were one class, whose intervals were
    too wide for long queues.
    """
    prior = prior_of(traits_of("slurm"))
    wide = []
    for width in (0.9, 1.2, 1.7, 2.4, 3.5):
        key = class_of(PredictedEvent.START, 1e5, width, RunTimeSource.TIME_LIMIT, 60.0, 360.0)
        residuals = prior[key]
        wide.append(np.quantile(residuals, 0.9) - np.quantile(residuals, 0.1))
    assert wide == sorted(wide)
    assert wide[-1] > 2.5 * wide[0]


def test_a_prior_contains_classes_with_enough_residuals() -> None:
    prior = learn_prior(Residual(traits_of("hops"), CLASS, i / 100.0) for i in range(100))
    assert set(prior["elastic"]) == {"start/2", "start/2/1", "start/2/1/samples"}
    assert not learn_prior([Residual(traits_of("hops"), CLASS, 1.0)])["elastic"]


def test_predictions_at_submission_count_among_the_starts_of_a_prior() -> None:
    submission_class = ("submission", *CLASS[1:])
    prior = learn_prior(
        Residual(traits_of("hops"), submission_class, i / 100.0) for i in range(100)
    )["elastic"]
    assert prior["start/2/1"] == prior["submission/2/1"]

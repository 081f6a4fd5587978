"""Calibration: intervals cover what they promise, whatever is wrong with the predictions."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopsd.predict.arrivals import MIN_WATCH_SECONDS, Arrivals
from hopsd.predict.calibration import (
    HISTORY_MAX,
    NOMINAL,
    STRETCH,
    Calibration,
    Class,
    Forecast,
    History,
    Kind,
    kaplan_meier,
    scale,
    unscale,
)
from hopsd.predict.limit_share import USUAL_SHARE, LimitShares
from hopsd.predict.prior import Residual, learn_prior, prior_of
from hopsd.predict.traits import traits_of

CLASS: Class = ("start", "2", "1", "samples")
EXACT = np.zeros(16)


def interval(of: Calibration, at: float, centre: float) -> tuple[float, float, float]:
    low, mid, high = of.quantiles(CLASS, at, EXACT)
    return centre + low, centre + mid, centre + high


@pytest.mark.parametrize(("bias", "sigma"), [(0.0, 0.3), (0.7, 0.5), (-1.0, 1.0)])
def test_intervals_come_true_as_often_as_they_promise(bias: float, sigma: float) -> None:
    """Outcomes come as much later as they are away: what is open is censored."""
    rng = np.random.default_rng(1)
    of = Calibration()
    open_: list[tuple[float, Forecast]] = []
    right = []
    for step in range(1500):
        now = 60.0 * step
        for due in [item for item in open_ if item[0] <= now]:
            open_.remove(due)
            true = scale(due[0] - due[1].time)
            if due[1].time > 60.0 * 500:
                right.append(due[1].low <= true <= due[1].high)
            of.resolve(due[1], due[0])
        of.begin(now)
        centre = scale(1800.0)
        low, _, high = interval(of, now, centre)
        said = Forecast(Kind.START, now, centre, low, high)
        of.record(CLASS, said)
        open_.append((now + unscale(centre + bias + sigma * rng.standard_normal()), said))
    assert NOMINAL - 0.06 < np.mean(right) < NOMINAL + 0.06


def test_what_is_still_open_makes_intervals_longer() -> None:
    """Of predictions of 10 minutes, half came true at once and half are overdue by hours."""
    of = Calibration()
    centre = scale(600.0)
    for i in range(200):
        at = 700.0 * i
        of.begin(at)
        said = Forecast(Kind.START, at, centre, centre, centre)
        of.record(CLASS, said)
        if i % 2:
            of.resolve(said, at + 600.0)
    of.begin(200_000.0)
    _, _, high = of.quantiles(CLASS, 200_000.0, EXACT)
    assert unscale(centre + high) > 15_000.0


def test_a_queue_that_errs_together_counts_as_few() -> None:
    """One busy hour, 20 jobs each minute, all 3 times as late as predicted: the prior still rules.

    Days of the same, one hour apart, replace it.
    """

    def high(at: Sequence[float], jobs: int) -> float:
        of = Calibration({CLASS[:depth]: [-0.1, 0.0, 0.1] for depth in (2, 3, 4)})
        centre = scale(3600.0)
        for now in at:
            of.begin(now)
            for _ in range(jobs):
                said = Forecast(Kind.START, now, centre, centre, centre)
                of.record(CLASS, said)
                of.resolve(said, now + 3 * 3600.0)
        of.begin(1e7)
        of.stretch[Kind.START] = 0.0, 0.0
        return of.quantiles(CLASS, 1e7, EXACT)[1]

    assert high([60.0 * i for i in range(60)], 20) == pytest.approx(0.0, abs=0.11)
    assert high([3600.0 * i for i in range(80)], 20) > 1.0


def test_what_is_overdue_stretches_intervals_at_once() -> None:
    of = Calibration()
    of.begin(0.0)
    late = Forecast(Kind.END, 0.0, scale(600.0), scale(500.0), scale(700.0))
    of.record(CLASS, late)
    of.begin(600.0)
    assert of.stretch[Kind.END] == (0.0, 0.0)
    of.begin(800.0)
    first, last = of.stretch[Kind.END]
    assert first < 0.0 < last
    of.resolve(late, 900.0)  # it was judged already
    assert of.stretch[Kind.END] == (first, last)


def test_a_cancelled_job_teaches_nothing() -> None:
    of, plain = Calibration(), Calibration()
    for i in range(100):
        for each in (of, plain):
            each.begin(3600.0 * i)
            said = Forecast(Kind.START, 3600.0 * i, 4.0, 3.0, 5.0)
            each.record(CLASS, said)
            each.resolve(said, 3600.0 * i + unscale(4.0 + i / 100.0))
        gone = Forecast(Kind.START, 3600.0 * i, 4.0, 3.0, 5.0)
        of.record(("start", "2", "1", "gone"), gone)
        of.forget(gone)
    found = of.quantiles(CLASS, 1e7, EXACT)
    assert found == pytest.approx(plain.quantiles(CLASS, 1e7, EXACT), abs=0.02)


def test_only_the_newest_predictions_are_kept() -> None:
    history = History()
    first = Forecast(Kind.END, 0.0, 1.0, 0.0, 2.0)
    first.keep(history)
    for i in range(HISTORY_MAX):
        history.add(1.0, 1.0, float(i), 1.0)
    first.weigh(0.5)
    first.resolve(100.0)
    values, weights, true = history.residuals(0.0)
    assert sorted(values.tolist()) == list(map(float, range(HISTORY_MAX)))
    assert weights.min() == true.min() == 1.0
    assert [row[0] for row in history.outcomes(2)] == [HISTORY_MAX - 2.0, HISTORY_MAX - 1.0]


def test_kaplan_meier_of_complete_data_is_the_plain_quantile() -> None:
    values = np.arange(1.0, 101.0)
    low, mid, high = kaplan_meier(values, np.ones(100), np.ones(100), (0.1, 0.5, 0.9))
    assert (low, mid, high) == (10.0, 50.0, 90.0)


def test_kaplan_meier_by_hand() -> None:
    """Deaths at 1 and 3 of 4 patients, one lost at 2: survival 3/4 after 1, 3/8 after 3."""
    values, true = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 0.0, 1.0, 0.0])
    assert kaplan_meier(values, np.ones(4), true, (0.25, 0.5, 0.625)) == (1.0, 3.0, 3.0)


@given(st.floats(0.0, 1e6))
def test_the_scale_can_be_undone(seconds: float) -> None:
    assert unscale(scale(seconds)) == pytest.approx(seconds, abs=1e-6, rel=1e-9)


def test_the_state_survives_a_restart() -> None:
    of = Calibration()
    for i in range(300):
        now = 1000.0 * i
        of.begin(now)
        said = Forecast(Kind.START, now, 3.0, 2.0, 4.0)
        of.record(CLASS, said)
        of.resolve(said, now + unscale(3.0 + i / 100.0))
    again = Calibration()
    again.restore(json.loads(json.dumps(of.as_dict())))
    of.begin(1e9)
    assert again.stretch == of.stretch
    found = again.quantiles(CLASS, 1e9, EXACT)
    assert found == pytest.approx(of.quantiles(CLASS, 1e9, EXACT), abs=1e-3)


@pytest.mark.parametrize(
    "damaged",
    [
        {},
        {"stretch": {"start": [7.0, 0.0], "end": "x", "never": [0.0, 0.0]}},
        {
            "outcomes": {
                "start/1": "x",
                "?": [[1.0, 1.0]],
                "end/1": [[1.0], [99.0, 1.0], [0.0, 2.0]],
            }
        },
    ],
)
def test_a_damaged_state_is_left_out(damaged: dict[str, object]) -> None:
    of = Calibration()
    of.restore(damaged)
    assert of.as_dict() == Calibration().as_dict()


def test_stretching_stays_within_bounds() -> None:
    of = Calibration()
    for right in (True, False):
        for _ in range(2000):
            of.resolve(Forecast(Kind.END, 0.0, 1.0, 0.0 if right else 5.0, 9.0, weight=1.0), 10.0)
        assert all(STRETCH[0] <= end <= STRETCH[1] for end in of.stretch[Kind.END])


def test_shares_of_limits_are_learnt() -> None:
    rng = np.random.default_rng(0)
    shares = LimitShares()
    assert shares.median == pytest.approx(USUAL_SHARE)
    for value in np.exp(rng.normal(np.log(0.1), 0.3, 300)):
        shares.note(float(value))
    assert shares.median == pytest.approx(0.1, rel=0.1)
    drawn = shares.draw(np.array([0.0, 0.5, 1.0]), 2000, rng)
    assert np.median(drawn[:, 0]) == pytest.approx(0.1, rel=0.15)
    assert (drawn[:, 1] >= 0.5).all()
    assert (drawn <= 1.0).all()


@pytest.mark.parametrize("share", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_shares_teach_nothing(share: float) -> None:
    shares = LimitShares()
    shares.note(share)
    assert shares == LimitShares()


def test_arrivals_are_counted_once_they_were_watched_long_enough() -> None:
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


def test_the_prior_has_every_family() -> None:
    for policy in ("hops", "slurm", "srtf"):
        prior = prior_of(traits_of(policy))
        assert {key[0] for key in prior} == {"start", "end"}
        assert all(list(values) == sorted(values) for values in prior.values())


def test_a_prior_is_made_of_classes_with_enough_residuals() -> None:
    found = learn_prior(Residual(traits_of("hops"), CLASS, i / 100.0) for i in range(100))
    assert set(found["elastic"]) == {"start/2", "start/2/1", "start/2/1/samples"}
    assert not learn_prior([Residual(traits_of("hops"), CLASS, 1.0)])["elastic"]

"""A long job among a stream of short ones: python -m bench.stream."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.stream import Outcome, main, min_mean, schedules, simulate
from hopsd.sim.engine import SimulationSettings

PLAN_SETTINGS = SimulationSettings().plan


def test_every_schedule_is_enumerated() -> None:
    """The long job's second round is before, between or after short jobs that arrive at 1 and 2."""
    outcomes = sorted((outcome.long, round(3 * outcome.mean)) for outcome in schedules(2, 2))
    assert outcomes == [(2, 2 + 2 + 2), (3, 3 + 1 + 2), (4, 4 + 1 + 1)]


@pytest.mark.parametrize(("long", "short"), [(2, 5), (3, 6), (4, 12)])
def test_the_least_mean_runs_the_long_job_as_late_as_possible(long: int, short: int) -> None:
    """It also runs without a break: the later its rounds are, the fewer short jobs wait for it."""
    outcomes = list(schedules(long, short))
    for end in range(long, long + short + 1):
        before = end - long
        short_ends = before + (short - before) * long
        assert min_mean(outcomes, end) == pytest.approx((end + short_ends) / (short + 1))


def test_no_policy_has_the_least_mean_without_starving_the_long_job() -> None:
    """A policy that lets it wait for at most three times its length takes 1.6 times as long in the
    mean as `srtf`, under which it waits as long as short ones come.
    """
    outcomes = list(schedules(4, 40))
    shortest = simulate(4, 40, replace(PLAN_SETTINGS, policy="srtf"))
    assert shortest == Outcome(44, min_mean(outcomes, 44))
    assert min_mean(outcomes, 16) > 1.6 * shortest.mean


@pytest.mark.slow
def test_the_weight_trades_the_mean_for_the_long_job() -> None:
    schedule_outcomes = list(schedules(4, 20))
    outcomes = [
        simulate(4, 20, replace(PLAN_SETTINGS, policy="hops+", tail_weight=weight))
        for weight in (0.0, 1.5, 10.0)
    ]
    assert [o.long for o in outcomes] == sorted((o.long for o in outcomes), reverse=True)
    assert [o.mean for o in outcomes] == sorted(o.mean for o in outcomes)
    assert outcomes[0].long > outcomes[2].long
    for outcome in outcomes:
        assert outcome.mean >= min_mean(schedule_outcomes, outcome.long) - 1e-9


def test_an_invalid_scene_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench.stream", "--short", "0"])
    with pytest.raises(SystemExit):
        main()
    assert "--long and --short must be at least 1" in capsys.readouterr().err

from __future__ import annotations

import hops_profiler
import pytest


@pytest.mark.parametrize(
    ("text", "expected"), [("0.4", 0.4), ("", 0.1), ("x", 0.1), ("-1", 0.1), ("inf", 0.1)]
)
def test_a_rate_in_the_comment_takes_precedence(
    monkeypatch: pytest.MonkeyPatch, text: str, expected: float
) -> None:
    monkeypatch.setenv("HOPS_LR", text)
    assert hops_profiler.learning_rate(0.1) == expected


def test_outside_a_job_the_script_keeps_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOPS_LR", raising=False)
    assert hops_profiler.learning_rate(0.1) == 0.1


@pytest.mark.parametrize(("rule", "expected"), [("linear", 0.8), ("sqrt", 0.4), ("none", 0.2)])
def test_rates_follow_the_scaling_rules(rule: str, expected: float) -> None:
    assert hops_profiler.scaled(0.2, gpus=8, reference=2, rule=rule) == pytest.approx(expected)


@pytest.mark.parametrize("wrong", [{"gpus": 0}, {"gpus": 1, "reference": 0}])
def test_counts_below_one_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="1 or more"):
        hops_profiler.scaled(0.1, **wrong)


def test_unknown_rules_are_refused() -> None:
    with pytest.raises(ValueError, match="linear, sqrt or none"):
        hops_profiler.scaled(0.1, 2, rule="cubic")

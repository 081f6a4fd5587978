"""Verdicts on the paper's page: an effect in the paper compared with one of ours."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.paper.claims import claims, verdict
from bench.paper.experiments import TABLE_4, Case
from bench.paper.runs import SavedRun


@pytest.mark.parametrize(
    ("paper", "ours", "expected"),
    [
        (-15.2, -20.0, "yes"),
        (-15.2, -7.6, "yes"),
        (-15.2, -7.5, "in direction"),
        (-15.2, 0.0, "no"),
        (-15.2, 6.3, "no"),
        (23.4, 80.0, "yes"),
    ],
)
def test_verdict_compares_our_effect_with_the_papers(
    paper: float, ours: float, expected: str
) -> None:
    assert verdict(paper, ours) == expected


def saved_run(case: Case, makespan: float) -> SavedRun:
    figures = {
        "makespan_h": makespan,
        "avg_jct_h": 1.0,
        "avg_wait_h": 1.0,
        "max_latency_ratio": 1.0,
        "avg_fragments": 1.0,
        "max_ftf": 1.0,
        "max_ftf_eq9": 1.0,
    }
    return SavedRun(case, figures, [], [], [], [], [], [])


def test_changes_are_means_over_the_seeds_that_both_policies_have() -> None:
    """Makespans of 11 and 12 against 10 are +15 %; hops lacks the only seed that Gavel has."""
    hops, sia, gavel = (
        next(c for c in TABLE_4 if c.policy == p) for p in ("hops", "sia-hops", "gavel-queue")
    )
    runs = {
        case: saved_run(case, makespan)
        for case, makespan in (
            (hops, 11.0),
            (sia, 10.0),
            (replace(hops, seed=1), 12.0),
            (replace(sia, seed=1), 10.0),
            (replace(sia, seed=2), 1.0),
            (replace(gavel, seed=2), 1.0),
        )
    }
    makespan_claims = [c for c in claims(runs.get) if "makespan" in c.text]
    assert [(c.text, c.seeds, c.agrees) for c in makespan_claims] == [
        ("512 GPUs: makespan against Sia", 2, "no")
    ]
    assert makespan_claims[0].result.startswith("+15.0 ±")


def test_seeds_that_differ_more_than_the_effect_decide_nothing() -> None:
    hops, sia = (next(c for c in TABLE_4 if c.policy == p) for p in ("hops", "sia-hops"))
    runs = {
        case: saved_run(case, makespan)
        for case, makespan in (
            (hops, 8.0),
            (sia, 10.0),
            (replace(hops, seed=1), 11.0),
            (replace(sia, seed=1), 10.0),
        )
    }
    makespan_claims = [c for c in claims(runs.get) if "makespan" in c.text]
    assert [c.agrees for c in makespan_claims] == ["undecided"]

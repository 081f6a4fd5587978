"""The search over what the paper does not state: its workloads, and its verdicts by hand."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bench.paper.experiments import SEARCH
from bench.paper.search import COMBINATIONS, FIGURES, PAPER, Assumptions, agrees, scene, tables
from bench.spread import Interval
from hopsd.sim.facts import facts_of


def gpu_hours(assumptions: Assumptions) -> list[float]:
    cluster, workload = scene(assumptions, 0)
    assert (cluster.gpus, len(workload.jobs)) == (64, 62)
    return [facts.gpu_seconds / 3600.0 for facts in facts_of(cluster, workload)]


def test_assumptions_change_the_work_and_the_shortest_job() -> None:
    usual = gpu_hours(Assumptions())
    assert gpu_hours(Assumptions(work=1.4)) == pytest.approx([1.4 * hours for hours in usual])
    longer = gpu_hours(Assumptions(shortest=0.5))
    longer_jobs = [(a, b) for a, b in zip(usual, longer, strict=True) if b > 1.001 * a]
    assert longer_jobs
    assert all(b > a for a, b in longer_jobs)
    assert gpu_hours(Assumptions(round_seconds=180.0)) == usual


def test_every_run_has_a_unique_name() -> None:
    assert len({case.name for case in SEARCH}) == len(SEARCH)
    assert {case.assumptions for case in SEARCH} == set(COMBINATIONS)


@pytest.mark.parametrize(
    ("mean", "high", "expected"),
    [(0.77, 0.9, True), (0.6, 0.9, True), (0.78, 0.9, False), (0.7, 1.1, False), (1.2, 1.3, False)],
)
def test_an_effect_counts_if_it_is_half_the_papers_and_beyond_chance(
    mean: float, high: float, expected: bool
) -> None:
    """The paper's ratio is 0.6, the root of which is 0.775."""
    assert agrees(0.6, Interval(mean, 0.5, high)) is expected


def test_only_combinations_run_on_two_seeds_have_rows() -> None:
    """hops has half of the rival's figures: enough for three of the five effects over Sia."""
    combination = COMBINATIONS[0]

    def find(assumptions: Assumptions, policy: str) -> Mapping[int, Mapping[str, float]]:
        value = 1.0 if policy == "hops" else 2.0
        figures = dict.fromkeys(FIGURES.values(), value)
        return dict.fromkeys((0, 1), figures) if assumptions == combination else {}

    rows = [
        row
        for row in tables(find).splitlines()
        if row.startswith(f"| {combination.round_seconds:g} |")
    ]
    assert len(rows) == len(PAPER)
    assert rows[0].count("**0.5** (0.50-0.50)") == 3
    assert rows[0].endswith("| 3 |")

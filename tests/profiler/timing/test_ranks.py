"""Several ranks: which of them share a batch, and which of them wait."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Node

pytestmark = pytest.mark.live

BATCH, ITERATIONS = 16, 40


@pytest.mark.long
@pytest.mark.parametrize("kind", ["tensor", "pipeline", "stages"])
def test_ranks_that_share_a_batch_report_their_shares(node: Node, kind: str) -> None:
    reports = node.torchrun(2, "ranks", kind).reports
    assert [(r["iterations"], r["failure"]) for r in reports] == [(ITERATIONS, "")] * 2
    assert sum(r["samples"] for r in reports) == ITERATIONS * BATCH
    assert [r["communication_timed"] for r in reports] == [False] * 2


@pytest.mark.long
def test_ranks_that_share_layers_train_on_the_rows_of_all(node: Node) -> None:
    reports = node.torchrun(2, "ranks", "sequence").reports
    assert [(r["samples"], r["failure"]) for r in reports] == [(ITERATIONS * BATCH, "")] * 2


@pytest.mark.long
def test_samples_of_stages_are_unknown_if_they_read_no_loader(node: Node) -> None:
    reports = node.torchrun(2, "ranks", "stages_without_loader").reports
    assert [(r["samples"], r["samples_from"], r["failure"]) for r in reports] == [(0, "", "")] * 2


@pytest.mark.long
def test_a_rank_that_reads_for_others_reports_the_samples_it_trains_on(node: Node) -> None:
    reports = node.torchrun(2, "ranks", "dispatched").reports
    assert [r["samples"] for r in reports] == [ITERATIONS * BATCH] * 2


@pytest.mark.long
@pytest.mark.parametrize("ranks", [2, 4])
def test_waiting_and_communication_agree_with_clocks_around_the_all_reduces(
    node: Node, ranks: int
) -> None:
    """The second rank is 40 ms late. The model no longer exists at the last report. Three tries,
    as the machine may be busy."""
    session = []
    for _ in range(3):
        result = node.torchrun(ranks, "ranks", "local")
        results = [r["basics"] for r in result.reports]
        rank_times = [(basics["t_w"], basics["t_c"]) for basics in results]
        assert all(report["communication_timed"] for report in result.reports)
        clocks = json.loads(result.out.splitlines()[-1])
        bound = 0.1 * min(basics["t_iter"] for basics in results)
        if all(
            mine == pytest.approx(clock, abs=bound)
            for rank, by_hand in zip(rank_times, clocks, strict=True)
            for mine, clock in zip(rank, by_hand, strict=True)
        ):
            assert rank_times[1][0] < min(wait for wait, _ in rank_times[:1] + rank_times[2:])
            return
        session.append((rank_times, clocks, bound))
    pytest.fail(f"waiting and traffic of each rank, by clocks, and what is allowed: {session}")

"""Several ranks: who works on which batch, and who waits for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Node

pytestmark = pytest.mark.live

BATCH, ITERATIONS = 16, 40


@pytest.mark.parametrize("kind", ["tensor", "pipeline"])
def test_ranks_that_share_a_batch_tell_their_shares(node: Node, kind: str) -> None:
    reports = node.torchrun(2, "ranks", kind).reports
    assert [(r["iterations"], r["failure"]) for r in reports] == [(ITERATIONS, "")] * 2
    assert sum(r["samples"] for r in reports) == ITERATIONS * BATCH


def test_a_rank_that_reads_for_others_tells_what_it_trains_on(node: Node) -> None:
    reports = node.torchrun(2, "ranks", "dispatched").reports
    assert [r["samples"] for r in reports] == [ITERATIONS * BATCH] * 2


def test_a_rank_that_always_waits_knows_it_and_communication_outlives_its_model(node: Node) -> None:
    """The model is gone when the last report is made. 40 ms late; a busy machine: three tries."""
    seen = []
    for _ in range(3):
        fast, slow = (r["basics"] for r in node.torchrun(2, "ranks", "local").reports)
        assert fast["t_c"] is not None
        assert slow["t_c"] is not None
        if (
            fast["t_w"] == pytest.approx(0.04, rel=0.25)
            and slow["t_w"] < 0.01
            and fast["t_c"] == pytest.approx(slow["t_c"], abs=0.01)
        ):
            return
        seen.append((fast, slow))
    pytest.fail(f"basic times of rank 0 and 1: {seen}")

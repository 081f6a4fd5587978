"""Plans of rack-bound jobs against a search over every plan."""

from __future__ import annotations

import pytest
from best_plan import check
from rack_reference import RackReference, odd_snapshot, rack_snapshot, segment_snapshot

from hopsd.core.placement import generate

pytestmark = pytest.mark.slow  # 300 exhaustive searches


@pytest.mark.parametrize("seed", range(300))
def test_the_plan_is_the_best_of_all_that_respect_racks(seed: int) -> None:
    check(rack_snapshot(seed), RackReference)


@pytest.mark.parametrize("seed", range(100))
def test_the_plan_is_the_best_of_all_that_spread_or_consolidate_segments(seed: int) -> None:
    check(segment_snapshot(seed), RackReference)


@pytest.mark.parametrize("seed", range(48))
def test_odd_topologies_give_the_best_plan(seed: int) -> None:
    check(odd_snapshot(seed), RackReference)


@pytest.mark.parametrize("seed", range(300, 360))
def test_the_plan_is_the_best_with_columns_generated_lazily(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "MAX_WRITTEN", 0)
    monkeypatch.setattr(generate, "_COLUMNS_PER_SET", 0)
    check(rack_snapshot(seed), RackReference)

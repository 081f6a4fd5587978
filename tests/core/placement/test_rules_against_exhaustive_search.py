"""Plans under rules and limits against a search over every plan."""

from __future__ import annotations

import pytest
from best_plan import check
from small_snapshots import ruled_snapshot, small_snapshot

from hopsd.core.placement import generate


@pytest.mark.parametrize("seed", range(500))
def test_the_plan_is_the_best_of_all_that_obey_the_rules(seed: int) -> None:
    check(ruled_snapshot(seed))


@pytest.mark.parametrize("seed", range(500, 600))
def test_the_plan_is_the_best_with_columns_generated_lazily(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "MAX_WRITTEN", 0)
    monkeypatch.setattr(generate, "_COLUMNS_PER_SET", 0)
    check(ruled_snapshot(seed))


@pytest.mark.parametrize("seed", [60593, 61034])
def test_a_job_that_uses_nothing_of_an_exceeded_limit_may_run(seed: int) -> None:
    """Kept jobs hold more than a limit allows; the job's share in ``per_gpu`` is 0."""
    check(ruled_snapshot(seed))


@pytest.mark.parametrize("seed", range(60))
def test_both_references_agree_without_rules(seed: int) -> None:
    check(small_snapshot(seed))

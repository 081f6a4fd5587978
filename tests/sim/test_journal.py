"""A journal changes nothing about when a policy is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopsd.policies.registry import get
from hopsd.sim.journal import journaled

TRAITS = ("only_first", "every_first", "settles")


@pytest.mark.parametrize(
    ("name", "trait"), [("sia", "only_first"), ("sjf", "settles"), ("hops", "")]
)
def test_a_journaled_policy_is_asked_as_the_policy_is(
    name: str, trait: str, tmp_path: Path
) -> None:
    with journaled(get(name), tmp_path / "j.jsonl", "run", resume=False) as policy:
        assert [t for t in TRAITS if getattr(policy, t, False)] == [trait] * bool(trait)

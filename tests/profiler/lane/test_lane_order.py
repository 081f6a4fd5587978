"""The order of turns in a lane: Hare's, as in hops' policies."""

from __future__ import annotations

import pytest
from hops_profiler.lane.order import POLICIES, ROUND_ROBIN, arrange
from hypothesis import given, settings
from hypothesis import strategies as st

from hopsd.policies.hare.schedulers import SCHEDULERS
from hopsd.policies.hare.sequence import sequence


def test_the_trial_with_the_least_remaining_time_is_first_once_all_are_known() -> None:
    remaining = {"a": 20.0, "b": 5.0, "c": 9.0}
    for policy in POLICIES:
        assert arrange(policy, ["a", "b", "c"], remaining) == ["b", "c", "a"]
        assert arrange(policy, ["a", "b", "c"], {**remaining, "c": None}) == ["a", "b", "c"]
    assert arrange(ROUND_ROBIN, ["a", "b", "c"], remaining) == ["a", "b", "c"]


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 6), st.floats(0.1, 9)), min_size=1, max_size=5),
    st.sampled_from(POLICIES),
)
def test_on_one_gpu_the_order_is_as_good_as_that_of_the_policies(
    trainings: list[tuple[int, float]], policy: str
) -> None:
    """The mean completion time of the policies is never earlier."""
    turns, seconds = [t for t, _ in trainings], [s for _, s in trainings]
    remaining = {n: t * s for n, (t, s) in enumerate(trainings)}
    order = arrange(policy, list(remaining), dict(remaining))
    (theirs,) = sequence(turns, seconds, 1, SCHEDULERS[policy])
    now, ends = 0.0, {}
    for n in theirs:
        now += seconds[n]
        ends[n] = now
    best = sum(remaining[n] * (len(order) - place) for place, n in enumerate(order))
    assert best <= sum(ends.values()) * (1 + 1e-9)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 6), st.floats(0.1, 9)), min_size=1, max_size=4),
    st.integers(1, 3),
    st.sampled_from(sorted(SCHEDULERS)),
)
def test_the_sequence_contains_each_turn_once(
    trainings: list[tuple[int, float]], gpus: int, policy: str
) -> None:
    turns, seconds = [t for t, _ in trainings], [s for _, s in trainings]
    lines = sequence(turns, seconds, gpus, SCHEDULERS[policy])
    assert len(lines) == gpus
    flat = [training for line in lines for training in line]
    assert [flat.count(training) for training in range(len(turns))] == turns


def test_on_one_gpu_the_shortest_trial_is_first() -> None:
    assert sequence([4, 2, 3], [1.0, 1.0, 1.0], 1, SCHEDULERS["hare-dispatch"]) == [
        [1, 1, 2, 2, 2, 0, 0, 0, 0]
    ]

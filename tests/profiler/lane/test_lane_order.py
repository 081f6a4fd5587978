"""Whose turn is next in a lane: Hare's sequence, asked of hopsctl in the background."""

from __future__ import annotations

from pathlib import Path

import pytest
from hops_profiler.lane.order import ROUND_ROBIN, Order
from hypothesis import given, settings
from hypothesis import strategies as st

from hopsd.policies.hare.schedulers import SCHEDULERS
from hopsd.policies.hare.sequence import sequence


def answering(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    program = folder / "hopsctl"
    program.write_text(f'#!/bin/sh\necho "$@" >>{folder}/asked\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder / "asked"


def arranged(order: Order[str], left: dict[str, tuple[float, float] | None]) -> list[str]:
    """As soon as the answer has come."""
    order.arrange(list(left), left)
    assert order._process is not None
    order._process.wait(30)
    return order.arrange(list(left), left)


def test_turns_follow_the_sequence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answering(tmp_path, monkeypatch, "echo 3 3 1 2 1")
    order: Order[str] = Order("hare-eft")
    left: dict[str, tuple[float, float] | None] = {"a": (2, 5.0), "b": (1, 9.0), "c": (60, 1.0)}
    assert arranged(order, left) == ["c", "a", "b"]
    assert asked.read_text() == "sequence --policy=hare-eft 2x5.000000 1x9.000000 30x2.000000\n"
    for _ in range(4):  # two tasks of two turns each
        assert order.arrange(list(left), left)[0] == "c"
        order.turned("c")
    del left["c"]
    assert order.arrange(list(left), left) == ["a", "b"]
    order.turned("a")
    assert order.arrange(list(left), left) == ["b", "a"]


def test_without_a_sequence_they_go_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answering(tmp_path, monkeypatch, "exit 2")
    long: dict[str, tuple[float, float] | None] = {"b": (100, 1.0), "a": (90, 1.0)}
    for order, left in (
        (Order[str](ROUND_ROBIN), long),
        (Order[str]("hare"), {**long, "c": None}),
        (Order[str]("hare"), {"b": (30, 1.0), "a": (20, 1.0)}),  # over before an answer comes
    ):
        assert order.arrange(list(left), left) == list(left)  # type: ignore[arg-type]
    assert not asked.exists()
    order = Order("hare")
    assert arranged(order, long) == ["b", "a"]
    assert order.arrange(["a", "b"], long) == ["a", "b"]
    assert len(asked.read_text().splitlines()) == 1  # it is not asked again
    monkeypatch.setenv("PATH", "")
    assert Order[str]("hare").arrange(["b", "a"], long) == ["b", "a"]


def test_a_nonsensical_answer_counts_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(tmp_path, monkeypatch, "echo 1 7 x")
    left: dict[str, tuple[float, float] | None] = {"b": (100, 1.0), "a": (90, 1.0)}
    assert arranged(Order("hare"), left) == ["b", "a"]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 6), st.floats(0.1, 9)), min_size=1, max_size=4),
    st.integers(1, 3),
    st.sampled_from(sorted(SCHEDULERS)),
)
def test_each_turn_is_in_the_sequence_once(
    trainings: list[tuple[int, float]], gpus: int, policy: str
) -> None:
    turns, seconds = [t for t, _ in trainings], [s for _, s in trainings]
    made = sequence(turns, seconds, gpus, SCHEDULERS[policy])
    assert len(made) == gpus
    flat = [training for line in made for training in line]
    assert [flat.count(training) for training in range(len(turns))] == turns


def test_on_one_gpu_the_shortest_comes_first() -> None:
    assert sequence([4, 2, 3], [1.0, 1.0, 1.0], 1, SCHEDULERS["hare-dispatch"]) == [
        [1, 1, 2, 2, 2, 0, 0, 0, 0]
    ]

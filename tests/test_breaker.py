"""Servers and calls that may hang do not block their callers."""

from __future__ import annotations

import threading

import pytest

from hopsd import breaker
from hopsd.breaker import Breaker, LastAnswers


def test_a_silent_server_is_asked_again_after_growing_pauses() -> None:
    now = 0.0
    slurmdbd = Breaker("slurmdbd", 30.0, 100.0, lambda: now)
    assert slurmdbd.refusal() == ""
    for pause in (30.0, 60.0, 100.0, 100.0):
        slurmdbd.note_silence("timed out")
        now += pause - 0.1
        assert slurmdbd.refusal() == "slurmdbd does not answer (timed out)"
        now += 0.2
        assert slurmdbd.refusal() == ""
        assert slurmdbd.problem  # slurmdbd has not answered yet
    slurmdbd.note_answer()
    assert slurmdbd.problem == ""
    slurmdbd.note_silence("again")
    now += 30.1
    assert slurmdbd.refusal() == ""


def test_the_last_answers_hold_while_a_call_hangs() -> None:
    answers = LastAnswers[str, int](10.0, 10.0)
    assert answers.get("ann", lambda: 1) == 1
    assert answers.get("bob", lambda: 2) == 2
    answers._seconds = 0.05
    hangs = threading.Event()

    def hang() -> int:
        hangs.wait()
        return 3

    assert answers.get("ann", hang) == 1
    assert answers.get("bob", pytest.fail) == 2  # not called: one call at a time
    assert answers.get("eve", pytest.fail) is None
    call = answers._call
    hangs.set()
    assert call is not None
    assert call.result(timeout=10.0) == 3
    hangs.clear()
    assert answers.get("ann", hang) == 3
    hangs.set()


def test_an_error_in_time_reaches_the_caller() -> None:
    def fail() -> int:
        raise KeyError("no such user")

    answers = LastAnswers[str, int](10.0, 10.0)
    with pytest.raises(KeyError):
        answers.get("ann", fail)
    assert answers.get("ann", lambda: 1) == 1


def test_answers_are_kept_for_a_limited_number_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breaker, "MAX_KNOWN", 3)
    answers = LastAnswers[int, int](10.0, 10.0)
    for key in range(3):
        answers.get(key, lambda: 1)
    assert len(answers._answers_by_key) == 3
    answers.get(3, lambda: 1)
    assert set(answers._answers_by_key) == {3}

"""A server that hangs costs a tick one short wait, and is not asked again for each question."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from hopsd.errors import AnswerPendingError, SlurmError, SlurmUnavailableError
from hopsd.slurm.accounting.guarded import (
    FIRST_PAUSE_SECONDS,
    MAX_PAUSE_SECONDS,
    TIMEOUT_SECONDS,
    GuardedCommands,
)
from hopsd.slurm.command import SlurmCommands


@dataclass
class Server:
    """Commands of a slurmdbd that hangs, answers or refuses, as the test sets it."""

    error: SlurmError | None = None
    call_count: int = 0
    seconds: float = 0.0
    now: float = 0.0
    answers: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.answers.set()

    def with_time_out(self, seconds: float) -> Server:
        self.seconds = seconds
        return self

    def run(self, *arguments: str) -> str:
        self.call_count += 1
        self.answers.wait()
        if self.error is not None:
            raise self.error
        return " ".join(arguments)


def breaker(server: Server) -> GuardedCommands:
    return GuardedCommands("slurmdbd", server, lambda: server.now)  # type: ignore[arg-type]


def test_a_silent_server_costs_one_short_time_out() -> None:
    server = Server(SlurmUnavailableError("sacct: no answer within 4 s"))
    dbd = breaker(server)
    for _ in range(100):
        with pytest.raises(SlurmUnavailableError):
            dbd.run("sacct")
    assert server.call_count == 1
    assert server.seconds == TIMEOUT_SECONDS
    assert dbd.problem == "slurmdbd does not answer (sacct: no answer within 4 s)"


def test_a_late_answer_is_returned_to_the_same_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hopsd.slurm.accounting.guarded.WAIT_SECONDS", 0.01)
    server = Server()
    dbd = breaker(server)
    server.answers.clear()
    for command in ("sacct", "sacct", "sacctmgr"):
        with pytest.raises(AnswerPendingError, match="slurmdbd has not answered yet"):
            dbd.run(command)
    server.answers.set()
    assert _answer(dbd, "sacct") == "sacct"
    assert server.call_count == 1
    assert _answer(dbd, "sacctmgr") == "sacctmgr"
    assert dbd.problem == ""


def test_an_unclaimed_late_answer_does_not_block_other_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hopsd.slurm.accounting.guarded.WAIT_SECONDS", 0.01)
    server = Server()
    dbd = breaker(server)
    server.answers.clear()
    with pytest.raises(AnswerPendingError):
        dbd.run("sacct")
    server.answers.set()
    assert _answer(dbd, "sacctmgr") == "sacctmgr"


def _answer(dbd: GuardedCommands, command: str) -> str:
    """Ask until there is an answer."""
    while True:
        try:
            return dbd.run(command)
        except AnswerPendingError:
            continue


def test_an_outage_is_announced_once() -> None:
    server, silences = Server(SlurmUnavailableError("sacct: no answer")), list[str]()
    dbd = GuardedCommands("slurmdbd", server, on_silence=silences.append)  # type: ignore[arg-type]
    for _ in range(3):
        with pytest.raises(SlurmUnavailableError):
            dbd.run("sacct")
    assert silences == ["sacct: no answer"]


def test_retries_come_at_growing_intervals() -> None:
    server = Server(SlurmUnavailableError("silence"))
    dbd = breaker(server)
    asked_at = []
    while server.now < 7200.0:
        previous_count = server.call_count
        with pytest.raises(SlurmUnavailableError):
            dbd.run("sacct")
        if server.call_count > previous_count:
            asked_at.append(server.now)
        server.now += 1.0
    gaps = [later - earlier for earlier, later in pairwise(asked_at)]
    assert gaps[:3] == [FIRST_PAUSE_SECONDS, 2 * FIRST_PAUSE_SECONDS, 4 * FIRST_PAUSE_SECONDS]
    assert max(gaps) == MAX_PAUSE_SECONDS


def test_an_answer_closes_the_breaker_and_a_refusal_does_not_open_it() -> None:
    server = Server(SlurmUnavailableError("silence"))
    dbd = breaker(server)
    with pytest.raises(SlurmUnavailableError):
        dbd.run("sacct")
    server.now += FIRST_PAUSE_SECONDS
    server.error = SlurmError("sacct: refused")
    for _ in range(3):
        with pytest.raises(SlurmError, match="refused"):
            dbd.run("sacct")
    server.error = None
    assert dbd.run("sacct", "-V") == "sacct -V"
    assert dbd.problem == ""


def test_a_shorter_time_out_is_kept() -> None:
    assert SlurmCommands(1.0).with_time_out(4.0).timeout_seconds == 1.0
    assert SlurmCommands(30.0).with_time_out(4.0).timeout_seconds == 4.0

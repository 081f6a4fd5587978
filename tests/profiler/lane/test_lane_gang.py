"""The leader of a trial with several ranks, one of which fails."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hops_profiler.lane
import pytest
from hops_profiler.lane import gang
from hops_profiler.lane.link import Link, pair

WORKER_FIELDS = {"number": 1, "ranks": 3, "iterations": 5}


@pytest.fixture
def lead(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return a function that starts a leader of three ranks: its PID and the executor's link."""

    def start(rank: Any) -> tuple[int, Link]:
        def serve(link: Link, _turnstile: object) -> None:
            link.receive()
            rank(int(os.environ["RANK"]), link)
            os._exit(0)

        fake = SimpleNamespace(serve=serve)
        monkeypatch.setattr(hops_profiler.lane, "worker", fake, raising=False)
        parent, child = pair()
        pid = os.fork()
        if not pid:
            parent.close()
            try:
                gang.serve(child)
            finally:
                os._exit(99)
        child.close()
        parent.send(**WORKER_FIELDS)
        return pid, parent

    return start


def until(file: Path) -> None:
    while not file.exists():
        time.sleep(0.01)


@pytest.mark.timeout(60)
def test_the_other_ranks_have_time_to_save(lead: Any, tmp_path: Path) -> None:
    """One is in the middle of an iteration, and one is already at its gate."""

    def rank(number: int, link: Link) -> None:
        if number == 1:
            until(tmp_path / "ready0")
            until(tmp_path / "ready2")
            os._exit(7)
        request: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _: request.append(number))
        (tmp_path / f"ready{number}").touch()
        if number == 2:
            link.send(paused=5)
            report = link.receive()
            assert report is not None
            assert report["do"] == "run"
        while not request:
            time.sleep(0.01)
        time.sleep(0.3)
        (tmp_path / f"saved{number}").touch()
        os._exit(85)

    pid, link = lead(rank)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert {path.name for path in tmp_path.glob("saved*")} == {"saved0", "saved2"}
    link.close()


@pytest.mark.timeout(60)
def test_all_ranks_end_immediately_between_turns(lead: Any) -> None:
    """Their state is not on the device, so they could save nothing."""

    def rank(number: int, link: Link) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        link.send(paused=5)
        link.receive()
        if number == 1:
            os._exit(7)
        time.sleep(60)

    pid, link = lead(rank)
    assert link.receive() == {"paused": 5}
    began = time.monotonic()
    link.send(do="evict")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert time.monotonic() - began < 20
    link.close()


@pytest.mark.timeout(60)
def test_a_rank_that_ignores_the_signal_is_killed(
    lead: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gang, "GRACE_SECONDS", 0.3)

    def rank(number: int, link: Link) -> None:
        if number == 1:
            os._exit(7)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)

    pid, link = lead(rank)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    link.close()

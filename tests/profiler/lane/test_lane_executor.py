"""An executor and workers that end in ways that a kill meets only now and then."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hops_profiler.lane.executor import Executor, Worker
from hops_profiler.lane.link import Link, pair
from hops_profiler.lane.settings import Settings
from hops_profiler.lane.trials import Trial

TRIAL = Trial(1, "t.py", ("t.py",), module=False)


@pytest.fixture
def tested(tmp_path: Path) -> Iterator[tuple[Executor, Link]]:
    """An executor, and the lane's end of its link."""
    lane, link = pair()
    executor = Executor(Settings(tmp_path / "trials", tmp_path, memory=9, host_memory=9), "", link)
    yield executor, lane
    lane.close()
    link.close()
    executor._turns.close()


def worker(seconds: float) -> Worker:
    """Of a process that closes its link at once, has no session of its own, and ends later."""
    parent, child = pair()
    pid = os.fork()
    if not pid:
        parent.close()
        child.close()
        time.sleep(seconds)
        os._exit(3)
    child.close()
    return Worker(pid, parent, trial=TRIAL, size=5, has_begun=True)


@pytest.mark.timeout(60)
def test_a_worker_whose_link_is_closed_is_waited_for(tested: tuple[Executor, Link]) -> None:
    executor, lane = tested
    of = worker(0.3)
    of.is_gone = True
    executor._active = [of]
    executor._turn(of)
    assert executor._active == []
    assert lane.receive() == {"ended": 1, "code": 3}


@pytest.mark.timeout(60)
def test_a_worker_without_a_session_yet_is_ended(tested: tuple[Executor, Link]) -> None:
    executor, lane = tested
    of = worker(1000.0)
    executor._active = [of]
    executor._kill(of)
    assert executor._active == []
    assert lane.receive() == {"ended": 1, "code": 128 + signal.SIGKILL}


def test_how_long_a_trial_starts_is_not_how_long_it_trains(
    tested: tuple[Executor, Link],
) -> None:
    """It has its second turn before others are compared with it; then its pace is known."""
    executor, _ = tested
    end, peer = pair()
    of = Worker(0, end, trial=TRIAL)
    assert executor._remaining(of) == 0.0
    report = {"bytes": 2, "peak": 0, "held": 2, "alone": "", "planned": 20}
    executor._from_worker(of, {"paused": 1, "seconds": 9.0, **report})
    assert executor._remaining(of) == 0.0
    executor._from_worker(of, {"paused": 1, "seconds": 0.5, **report})
    assert executor._remaining(of) == 18 * 0.5
    executor._from_worker(of, {"paused": 40, "seconds": 20.0, **report})
    assert executor._remaining(of) is None
    end.close()
    peer.close()


def test_what_a_waiting_trial_holds_counts(tested: tuple[Executor, Link]) -> None:
    """On a GPU that is more than its state: what PyTorch keeps of the intermediates' memory."""
    executor, _ = tested
    ends = pair()
    one, peer = (Worker(0, end, trial=TRIAL, size=2, peak=4) for end in ends)
    executor._active = [one, peer]
    assert not executor._tight()
    for item in (one, peer):
        item.place = "device"
        executor._from_worker(
            item,
            {"paused": 1, "seconds": 1.0, "bytes": 2, "peak": 5, "held": 4, "alone": "",
             "planned": None},
        )  # fmt: skip
    assert executor._used(but=one) == 4
    assert executor._used(but=one) + executor._need(one) == 9 == executor._capacity
    assert executor._tight()  # 5 and 5: the next turn ends with what the state needs, no more
    executor._from_worker(peer, {"evicted": 2})
    assert executor._used(but=one) == 0
    for item in (one, peer):
        item.link.close()

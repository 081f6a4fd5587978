"""An executor with workers that end in ways that random kills rarely produce."""

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
def executor_and_link(tmp_path: Path) -> Iterator[tuple[Executor, Link]]:
    """Yield an executor and the lane's end of its link."""
    lane, link = pair()
    executor = Executor(Settings(tmp_path / "trials", tmp_path, memory=9, host_memory=9), "", link)
    yield executor, lane
    lane.close()
    link.close()
    executor._turns.close()


def worker(seconds: float) -> Worker:
    """Return a worker that closes its link immediately, has no session, and ends later."""
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
def test_a_worker_whose_link_is_closed_is_awaited(
    executor_and_link: tuple[Executor, Link],
) -> None:
    executor, lane = executor_and_link
    slow_worker = worker(0.3)
    slow_worker.is_gone = True
    executor._active = [slow_worker]
    executor._turn(slow_worker)
    assert executor._active == []
    assert lane.receive() == {"ended": 1, "code": 3}


@pytest.mark.timeout(60)
def test_a_worker_without_a_session_is_killed(executor_and_link: tuple[Executor, Link]) -> None:
    executor, lane = executor_and_link
    slow_worker = worker(1000.0)
    executor._active = [slow_worker]
    executor._kill(slow_worker)
    assert executor._active == []
    assert lane.receive() == {"ended": 1, "code": 128 + signal.SIGKILL}


def test_the_startup_time_of_a_trial_is_not_its_training_time(
    executor_and_link: tuple[Executor, Link],
) -> None:
    """Its second turn comes before comparisons with others; then its pace is known."""
    executor, _ = executor_and_link
    end, peer = pair()
    trial_worker = Worker(0, end, trial=TRIAL)
    assert executor._remaining(trial_worker) == 0.0
    report = {"bytes": 2, "peak": 0, "held": 2, "alone": "", "planned": 20}
    executor._from_worker(trial_worker, {"paused": 1, "seconds": 9.0, **report})
    assert executor._remaining(trial_worker) == 0.0
    executor._from_worker(trial_worker, {"paused": 1, "seconds": 0.5, **report})
    assert executor._remaining(trial_worker) == 18 * 0.5
    executor._from_worker(trial_worker, {"paused": 40, "seconds": 20.0, **report})
    assert executor._remaining(trial_worker) is None
    end.close()
    peer.close()


def test_memory_held_by_a_waiting_trial_counts(executor_and_link: tuple[Executor, Link]) -> None:
    """On a GPU, it exceeds the state: PyTorch caches memory of intermediates."""
    executor, _ = executor_and_link
    ends = pair()
    waiting_worker, peer = (Worker(0, end, trial=TRIAL, size=2, peak=4) for end in ends)
    executor._active = [waiting_worker, peer]
    assert not executor._tight()
    for item in (waiting_worker, peer):
        item.place = "device"
        executor._from_worker(
            item,
            {"paused": 1, "seconds": 1.0, "bytes": 2, "peak": 5, "held": 4, "alone": "",
             "planned": None},
        )  # fmt: skip
    assert executor._bytes_in_use(but=waiting_worker) == 4
    assert (
        executor._bytes_in_use(but=waiting_worker) + executor._need(waiting_worker)
        == 9
        == executor._capacity
    )
    assert executor._tight()  # 5 and 5: the next turn ends with what the state needs, no more
    executor._from_worker(peer, {"evicted": 2})
    assert executor._bytes_in_use(but=waiting_worker) == 0
    for item in (waiting_worker, peer):
        item.link.close()

"""hopsd ticks early if a job arrives or GPUs become free, but not all the time."""

from __future__ import annotations

from typing import Any

from hopsd.errors import SlurmUnavailableError
from hopsd.model.ids import JobId
from hopsd.service.wake import SHARE, SILENCE_SECONDS, Waker
from hopsd.slurm.probe.activity import Activity


class Site:
    """slurmctld's counters, a clock, and the number of queries."""

    def __init__(self) -> None:
        self.now = 0.0
        self.activity = Activity(5, 3)
        self.is_away = False
        self.question_count = 0
        self.sessions: list[JobId] = []
        self.listing_count = 0
        self.waker = Waker(self.read, lambda: self.now, self.waiting)

    def read(self) -> Activity:
        self.question_count += 1
        if self.is_away:
            raise SlurmUnavailableError("away")
        return self.activity

    def waiting(self) -> list[JobId]:
        self.listing_count += 1
        return self.sessions

    def due(self, *, idle: int = 0, waiting: int = 0, mode: str = "active") -> bool:
        self.now += 2.0
        node = {"idle": idle, "usable": True}
        doc: dict[str, Any] = {"mode": mode, "nodes": [node], "waiting": [{"id": "1"}] * waiting}
        return self.waker.due(2.0, doc)


def test_a_submission_triggers_a_tick_if_gpus_are_idle() -> None:
    site = Site()
    assert not site.due(idle=1)
    assert not site.due(idle=1)
    site.activity = Activity(6, 3)
    assert site.due(idle=1)
    assert not site.due(idle=1)
    site.activity = Activity(7, 3)
    assert not site.due(waiting=4)


def test_an_end_triggers_a_tick_if_jobs_wait() -> None:
    site = Site()
    site.due()
    site.activity = Activity(5, 4)
    assert site.due(waiting=1)
    site.activity = Activity(5, 5)
    assert not site.due(idle=1)


def test_an_event_during_a_tick_triggers_another() -> None:
    site = Site()
    with site.waker.look(2.0):
        site.activity = Activity(6, 3)
    assert site.due(idle=1)
    with site.waker.look(2.0):
        pass
    assert not site.due(idle=1)


def test_reset_counters_count_as_a_change() -> None:
    site = Site()
    site.due()
    site.activity = Activity(1, 0)
    assert site.due(idle=1)


def test_only_the_leading_hopsd_asks() -> None:
    site = Site()
    for mode in ("paused", "standby"):
        assert not site.due(idle=1, mode=mode)
    assert site.question_count == 0
    assert not site.waker.due(0.0, {"mode": "active", "nodes": [], "waiting": []})
    with site.waker.look(0.0):
        pass
    assert site.question_count == 0


def test_a_silent_slurmctld_is_left_alone() -> None:
    site = Site()
    site.is_away = True
    assert not site.due(idle=1)
    for _ in range(int(SILENCE_SECONDS / 2) - 1):
        site.due(idle=1)
        with site.waker.look(2.0):
            pass
    assert site.question_count == 1
    site.due(idle=1)
    assert site.question_count == 2


def test_a_long_tick_is_followed_by_a_pause() -> None:
    site = Site()
    site.due()
    with site.waker.look(2.0):
        site.now += 5.0
    begin = site.now
    for submission_count in range(6, 15):
        site.activity = Activity(submission_count, 3)
        assert not site.due(idle=1), site.now
        assert site.now < begin + SHARE * 5.0
    assert site.due(idle=1)


def test_a_session_triggers_a_tick_on_a_full_cluster_and_in_a_pause() -> None:
    site = Site()
    with site.waker.look(2.0):
        site.now += 10.0
    assert not site.due()
    site.sessions = [JobId("7")]
    site.activity = Activity(6, 3)
    assert site.due()
    assert site.listing_count == 1


def test_jobs_are_listed_once_per_submission_and_known_sessions_wake_nobody() -> None:
    site = Site()
    site.sessions = [JobId("1")]
    assert not site.due(waiting=1)
    site.activity = Activity(6, 3)
    assert not site.due(waiting=1)
    assert not site.due(waiting=1)
    assert site.listing_count == 1

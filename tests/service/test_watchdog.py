"""What hopsd tells systemd if it cannot do its work."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from memory_store import MemoryStore

from hopsd.config import NotifyConfig
from hopsd.model.ids import JobId
from hopsd.model.reading import JobReading
from hopsd.notify.notifier import Notifier
from hopsd.service.daemon import FAILING_TICKS, Daemon
from hopsd.service.wake import Waker
from hopsd.slurm.command import SlurmCommands
from hopsd.slurm.fenced import FencedAdapter
from hopsd.slurm.probe.activity import Activity


@dataclass
class FailingController:
    """A controller whose ticks fail."""

    failing: int = 0
    message: str = "a defect of hops, KeyError:\n'x'"
    document: dict[str, Any] = field(default_factory=dict)

    def tick(self) -> str:
        self.failing += 1
        return self.message


@dataclass
class Notify:
    texts: list[str] = field(default_factory=list)

    def notify(self, text: str) -> None:
        self.texts.append(text)


class AnsweringAdapter:
    """An adapter that answers every request."""

    def jobs(self) -> list[JobReading]:
        return []

    def glance(self, jobs: Collection[JobId]) -> dict[JobId, JobReading]:
        return {}

    def hold(self, job: JobId, begin: float) -> None:
        pass


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    path = tmp_path / "hopsd.toml"
    path.write_text("")
    monkeypatch.setattr("hopsd.service.daemon.sdnotify.SystemdNotifier", Notify)
    daemon_instance: Any = Daemon(path)
    daemon_instance._controller = FailingController()
    daemon_instance._waker = Waker(lambda: Activity(0, 0))
    daemon_instance._notifier = Notifier(NotifyConfig(), MemoryStore(), SlurmCommands(5.0))  # type: ignore[arg-type]
    return daemon_instance


@pytest.mark.long
@pytest.mark.slow
def test_the_watchdog_is_not_fed_while_every_tick_fails_with_one_defect(daemon: Any) -> None:
    for number in range(1, FAILING_TICKS + 1):
        assert daemon._healthy(), number
        daemon._tick()
    assert not daemon._healthy()
    assert daemon._notify.texts[-1].endswith(
        "the watchdog is no longer notified, so that systemd restarts hopsd"
    )
    daemon._controller.failing = 0
    assert daemon._healthy()


def test_no_reference_cycle_outlives_its_tick(daemon: Any) -> None:
    references: list[weakref.ref[FailingController]] = []

    def tick() -> str:
        read: Any = FailingController()
        read.itself = read
        references.append(weakref.ref(read))
        return "done"

    daemon._controller.tick = tick
    gc.disable()
    try:
        daemon._tick()
    finally:
        gc.enable()
    assert references[0]() is None


@pytest.mark.slow
def test_a_status_is_one_line_for_any_error(daemon: Any) -> None:
    daemon._controller.message = "x\nWATCHDOG=1\n" + 2000 * "y"
    daemon._tick()
    (notification,) = daemon._notify.texts
    assert notification.startswith("STATUS=x WATCHDOG=1 yyy")
    assert len(notification) <= len("STATUS=") + 1000


def test_a_tick_that_makes_progress_feeds_the_watchdog(daemon: Any) -> None:
    """Updates and starts of thousands of jobs take longer than the patience with one request."""
    daemon._seen_alive -= daemon._patience()
    assert not daemon._healthy()
    adapter = FencedAdapter(AnsweringAdapter(), lambda: None, daemon._alive)  # type: ignore[arg-type]
    adapter.jobs()
    assert daemon._healthy()
    daemon._seen_alive -= daemon._patience()
    adapter.glance([])
    assert daemon._healthy()
    daemon._seen_alive -= daemon._patience()
    adapter.hold(JobId("1"))
    assert daemon._healthy()

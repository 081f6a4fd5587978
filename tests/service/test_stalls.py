"""A training's report that it stands still is read before the next tick, and only once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hopsd.service.stalls import EVERY_SECONDS, SHARE, StallWatch

NAME = "17.0.n0.{}.5.t0123456789abcdef.json"


class Folder:
    """A folder of reports, a clock, and the watch."""

    def __init__(self, path: Path) -> None:
        self.path, self.now, self.write_count = path, 0.0, 0
        self.watch = StallWatch(lambda work: work(), lambda: self.now)

    def report(self, rank: int, *, is_stalled: bool) -> Path:
        file = self.path / NAME.format(rank)
        self.write_count += 1
        word = str(is_stalled).lower()
        file.write_text(f'{{"number":{self.write_count},"stall":{{"stalled":{word}}}}}')
        return file

    def due(self) -> bool:
        """Return whether a tick is due after the folder has been read."""
        self.now += EVERY_SECONDS
        self.watch.due(self.path)
        return self.watch.due(self.path)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_each_stalled_rank_is_news_once(folder: Folder) -> None:
    folder.report(0, is_stalled=False)
    assert not folder.due()
    for rank in (0, 1):
        folder.report(rank, is_stalled=True)
        assert folder.due()
        folder.report(rank, is_stalled=True)
        assert not folder.due()


def test_a_rank_that_resumes_and_stalls_again_is_news_again(folder: Folder) -> None:
    for is_stalled in (True, False, True):
        folder.report(0, is_stalled=is_stalled)
        assert folder.due() is is_stalled


def test_files_that_are_not_reports_are_not_read(folder: Folder) -> None:
    folder.report(0, is_stalled=True).rename(folder.path / ".t0.partial")
    target = folder.report(1, is_stalled=True).rename(folder.path / "elsewhere")
    (folder.path / NAME.format(1)).symlink_to(target)
    (folder.path / NAME.format(2)).mkdir()
    assert not folder.due()


def test_a_missing_folder_is_left_to_the_tick(folder: Folder) -> None:
    folder.path = folder.path / "missing"
    assert not folder.due()


def test_a_slow_folder_is_read_seldom_and_delays_nobody(tmp_path: Path) -> None:
    tasks: list[Callable[[], None]] = []
    folder = Folder(tmp_path)
    folder.watch = StallWatch(tasks.append, lambda: folder.now)
    folder.report(0, is_stalled=True)
    assert not folder.due()
    assert not folder.due()
    assert len(tasks) == 1
    later = iter([0.0, 2.0, 2.0])
    folder.watch._clock = lambda: next(later)
    tasks.pop()()
    folder.watch._clock = lambda: folder.now
    folder.now = 2.0 + 2.0 / SHARE - 1.0
    assert folder.watch.due(tmp_path)
    assert tasks == []
    folder.now += 1.0
    assert not folder.watch.due(tmp_path)
    assert len(tasks) == 1

"""When a job saves, according to its current reports."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_values import NOW, report
from spooled_reports import job, look, put_report, reading

from hopsd.learning.reader import ReportReader
from hopsd.learning.save_reader import MAX_RANKS, SaveReader
from hopsd.model.reading import SaveTimes


def reader(folder: Path) -> SaveReader:
    return SaveReader(lambda: folder, clock=lambda: NOW)


def test_the_newest_save_of_the_present_run_counts(tmp_path: Path) -> None:
    put_report(tmp_path, report(saved_at=NOW - 30, save_every=20.0))
    put_report(tmp_path, report(rank=1, world=2, saved_at=NOW - 5, save_every=10.0))
    put_report(tmp_path, report(run=1, saving=True))
    put_report(tmp_path, report(job="170", saving=True))
    assert reader(tmp_path)(job()) == SaveTimes(at=NOW - 5, interval=10.0)


def test_a_save_in_progress_is_seen(tmp_path: Path) -> None:
    put_report(tmp_path, report(saving=True))
    assert reader(tmp_path)(job()) == SaveTimes(saving=True)


def test_a_process_that_has_ended_saves_no_more(tmp_path: Path) -> None:
    """A script's first training ended with a save, and a move waited 5 minutes for it."""
    put_report(tmp_path, report(saving=True, final=True))
    assert reader(tmp_path)(job()) is None
    put_report(tmp_path, report(pid=77, saving=True))
    assert reader(tmp_path)(job()) == SaveTimes(saving=True)


def test_names_of_other_users_hide_no_save_that_was_scanned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who filled the folder could hide from hopsd when other users' jobs save."""
    put_report(tmp_path, report(rank=1, world=2, saved_at=NOW - 5, save_every=10.0))
    reports = ReportReader(tmp_path)
    look(reports, reading(job()))
    for pid in range(2 * MAX_RANKS):
        (tmp_path / f"17.0.n0.0.{pid}.json").write_text("another's")
    saves = SaveReader(lambda: tmp_path, lambda: NOW, reports.accepted_names)
    assert saves(job()) == SaveTimes(at=NOW - 5, interval=10.0)
    monkeypatch.setattr("hopsd.learning.save_reader.MAX_LISTED", 0)
    assert saves(job()) == SaveTimes(at=NOW - 5, interval=10.0)


def test_nothing_is_known_without_reports(tmp_path: Path) -> None:
    assert reader(tmp_path)(job()) is None
    put_report(tmp_path, report())
    assert reader(tmp_path)(job()) is None
    assert reader(tmp_path / "nowhere")(job()) is None


def test_a_hostile_report_is_ignored(tmp_path: Path) -> None:
    for number, content in enumerate(
        [{"saved_at": "now"}, {"saved_at": NOW * 2}, {"save_every": -1.0}, {"saving": "yes"}]
    ):
        put_report(tmp_path, report(pid=number + 1, **content))
    (tmp_path / "17.0.n0.0.9.json").symlink_to("/dev/zero")
    assert reader(tmp_path)(job()) is None
    put_report(tmp_path, report(pid=77, saving=True))
    assert reader(tmp_path)(job(uid=job().uid + 1)) is None


def test_the_next_save_is_expected_after_the_interval_of_the_last_one() -> None:
    times = SaveTimes(at=100.0, interval=50.0)
    assert not times.ends_by(120.0, 20.0)
    assert times.ends_by(120.0, 30.0)
    assert SaveTimes(saving=True).ends_by(0.0, 0.0)
    assert not SaveTimes(at=100.0).ends_by(120.0, 1e9)

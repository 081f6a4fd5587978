"""Whatever users leave in the spool, a scan takes a bounded time and loses no report."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from report_values import NOW, report
from spooled_reports import UID, job, look, put_report, reading

from hopsd.learning import reader as reader_module
from hopsd.learning import spool
from hopsd.learning.reader import ReportReader


def junk(folder: Path, count: int) -> None:
    for number in range(count):
        path = folder / f"junk{number}"
        path.touch()
        os.utime(path, (NOW, NOW))


def test_a_scan_lists_a_part_and_every_report_is_found_eventually(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "MAX_LISTED", 10)
    junk(tmp_path, 95)
    put_report(tmp_path, report())
    reader = ReportReader(tmp_path)
    progress_by_look = [look(reader, reading(job())).samples_done for _ in range(11)]
    assert progress_by_look[-1] == {"17": 3296}
    assert progress_by_look.count({}) < 11
    first = next(n for n, progress in enumerate(progress_by_look) if progress)
    assert all(progress_by_look[first:])
    reader.close()


def test_files_with_timestamps_in_the_future_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "for ever"
    path.touch()
    os.utime(path, (NOW + 1e9, NOW + 1e9))
    look(ReportReader(tmp_path), reading())
    assert not path.exists()


def test_junk_that_cannot_be_removed_is_reported_once(tmp_path: Path) -> None:
    full = tmp_path / "folder"
    full.mkdir()
    (full / "x").touch()
    os.utime(full, (1.0, 1.0))
    reader = ReportReader(tmp_path)
    assert [str(r) for r in look(reader, reading()).refusals] == [
        "folder: of no job, and cannot be removed"
    ]
    assert look(reader, reading()).refusals == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
def test_only_files_of_the_jobs_owner_count_against_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "MAX_FILES_PER_JOB", 1)
    for pid in range(5):
        os.chown(put_report(tmp_path, report(pid=pid)), UID + 1, -1)
    put_report(tmp_path, report(pid=9))
    collection = look(ReportReader(tmp_path), reading(job()))
    assert collection.samples_done == {"17": 3296}
    assert len(collection.refusals) == 5


def test_a_users_remaining_reports_are_read_at_the_next_scan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "MAX_READ_PER_USER", 1)
    for pid in range(3):
        put_report(tmp_path, report(pid=pid))
    reader = ReportReader(tmp_path)
    progress_by_look = [look(reader, reading(job())).samples_done["17"] for _ in range(3)]
    assert progress_by_look == [3296, 2 * 3296, 3 * 3296]

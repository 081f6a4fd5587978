"""A report folder that hangs stops no tick, and is read again once it answers."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from report_values import report
from spooled_reports import job, put_report, reading

from bench.chaos.hanging import hanging_file_system
from hopsd.learning import background
from hopsd.learning.background import BackgroundReader
from hopsd.learning.reader import Collection
from hopsd.model.reading import SlurmState


def collected_soon(reader: BackgroundReader) -> Collection:
    deadline = time.monotonic() + 20.0
    while time.monotonic() < deadline:
        _, collection = reader.collect(reading(job()))
        if not collection.unread:
            return collection
        time.sleep(0.02)
    raise AssertionError(collection.unread)


@pytest.mark.skipif(os.getuid() != 0, reason="mounts a file system")
def test_a_folder_that_hangs_costs_one_short_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "WAIT_SECONDS", 0.3)
    put_report(tmp_path, report())
    reader = BackgroundReader(tmp_path)
    start_time = time.monotonic()
    with hanging_file_system(tmp_path) as is_mounted:
        if not is_mounted:
            pytest.skip("no FUSE")
        for _ in range(20):
            _, collection = reader.collect(reading(job()))
            reader.settle()
            assert collection.unread.startswith(f"{tmp_path} has not answered for ")
        assert 0.3 <= time.monotonic() - start_time < 5.0
    assert collected_soon(reader).samples_done
    reader.close()


def test_what_was_read_late_belongs_to_the_reading_it_was_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "WAIT_SECONDS", 0.0)
    put_report(tmp_path, report())
    reader, first = BackgroundReader(tmp_path), reading(job())
    answered_reading, collection = reader.collect(first)
    deadline = time.monotonic() + 20.0
    while collection.unread and time.monotonic() < deadline:
        answered_reading, collection = reader.collect(reading())
    assert answered_reading is first
    assert set(collection.samples_done) == {"17"}


def test_reports_are_removed_before_the_next_scan(tmp_path: Path) -> None:
    path = put_report(tmp_path, report(final=True))
    ended_job = job(state=SlurmState.COMPLETED)
    reader = BackgroundReader(tmp_path)
    reader.collect(reading(ended_job))
    reader.settle()
    _, collection = reader.collect(reading(ended_job))
    assert not path.exists()
    assert not collection.samples_done

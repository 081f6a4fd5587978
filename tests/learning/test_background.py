"""A report folder that hangs stops no tick, and is read again once it answers."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from report_values import report
from spooled_reports import job, put, reading

from bench.chaos.hanging import hanging_file_system
from hopsd.learning import background
from hopsd.learning.background import BackgroundReader
from hopsd.learning.reader import Collected
from hopsd.model.reading import SlurmState


def collected_soon(reader: BackgroundReader) -> Collected:
    deadline = time.monotonic() + 20.0
    while time.monotonic() < deadline:
        _, collected = reader.collect(reading(job()))
        if not collected.unread:
            return collected
        time.sleep(0.02)
    raise AssertionError(collected.unread)


@pytest.mark.skipif(os.getuid() != 0, reason="mounts a file system")
def test_a_folder_that_hangs_costs_one_short_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "WAIT_SECONDS", 0.3)
    put(tmp_path, report())
    reader = BackgroundReader(tmp_path)
    begun = time.monotonic()
    with hanging_file_system(tmp_path) as mounted:
        if not mounted:
            pytest.skip("no FUSE")
        for _ in range(20):
            _, collected = reader.collect(reading(job()))
            reader.settle()
            assert collected.unread.startswith(f"{tmp_path} has not answered for ")
        assert 0.3 <= time.monotonic() - begun < 5.0
    assert collected_soon(reader).samples_done
    reader.close()


def test_what_was_read_late_belongs_to_the_reading_it_was_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "WAIT_SECONDS", 0.0)
    put(tmp_path, report())
    reader, first = BackgroundReader(tmp_path), reading(job())
    seen, collected = reader.collect(first)
    deadline = time.monotonic() + 20.0
    while collected.unread and time.monotonic() < deadline:
        seen, collected = reader.collect(reading())
    assert seen is first
    assert set(collected.samples_done) == {"17"}


def test_reports_are_removed_before_the_next_scan(tmp_path: Path) -> None:
    path = put(tmp_path, report(final=True))
    ended = job(state=SlurmState.COMPLETED)
    reader = BackgroundReader(tmp_path)
    reader.collect(reading(ended))
    reader.settle()
    _, collected = reader.collect(reading(ended))
    assert not path.exists()
    assert not collected.samples_done

"""A report folder that hangs does not stop ticks, and is read again once it answers."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from report_values import NOW, report
from spooled_reports import job, put_report, reading

from bench.chaos.hanging import hanging_file_system
from hopsd.learning import reading_thread
from hopsd.learning.reader import Collection
from hopsd.learning.reading_thread import BackgroundReader, BackgroundSaves
from hopsd.learning.save_reader import SaveReader
from hopsd.model.reading import JobReading, SaveTimes, SlurmState


def wait_for_collection(reader: BackgroundReader) -> Collection:
    deadline = time.monotonic() + 20.0
    while time.monotonic() < deadline:
        _, collection = reader.collect(reading(job()))
        if not collection.unread:
            return collection
        time.sleep(0.02)
    raise AssertionError(collection.unread)


@pytest.mark.skipif(os.getuid() != 0, reason="mounts a file system")
def test_a_hanging_folder_costs_one_short_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_thread, "WAIT_SECONDS", 0.3)
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
    assert wait_for_collection(reader).samples_done
    reader.close()


def test_a_late_result_belongs_to_the_reading_that_asked_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_thread, "WAIT_SECONDS", 0.0)
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


@pytest.mark.skipif(os.getuid() != 0, reason="mounts a file system")
def test_a_job_that_leaves_while_the_folder_hangs_delays_no_tick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tick read when the job saves, and so waited as long as the file server hung.

    It waited again after the watchdog had restarted hopsd.
    """
    monkeypatch.setattr("hopsd.learning.reading_thread.WAIT_SECONDS", 0.3)
    put_report(tmp_path, report(saved_at=NOW - 5, save_every=10.0))
    saves = BackgroundSaves(SaveReader(lambda: tmp_path, lambda: NOW))
    assert saves(job()) == SaveTimes(at=NOW - 5, interval=10.0)
    start_time = time.monotonic()
    with hanging_file_system(tmp_path) as is_mounted:
        if not is_mounted:
            pytest.skip("no FUSE")
        for _ in range(20):
            assert saves(job()) == SaveTimes(at=NOW - 5, interval=10.0)
            assert saves(job(restarts=1)) is None
        assert time.monotonic() - start_time < 5.0


def test_many_leaving_jobs_wait_for_a_slow_folder_for_seconds_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hopsd.learning.reading_thread.SAVES_SECONDS", 0.2)
    reads = []

    def read(job: JobReading) -> SaveTimes:
        reads.append(job)
        time.sleep(0.05)
        return SaveTimes(saving=True)

    saves = BackgroundSaves(read)
    start_time = time.monotonic()
    answers = [saves(job(restarts=run)) for run in range(100)]
    assert time.monotonic() - start_time < 1.5
    assert answers[0] == SaveTimes(saving=True)
    assert answers[-1] is None
    assert len(reads) < 30


def test_errors_of_a_read_reach_its_caller() -> None:
    def read(_job: JobReading) -> SaveTimes:
        raise RuntimeError("a defect")

    with pytest.raises(RuntimeError, match="a defect"):
        BackgroundSaves(read)(job())


def test_saves_are_read_again_once_the_folder_answers() -> None:
    answers = threading.Event()

    def read(_job: JobReading) -> SaveTimes:
        answers.wait(20.0)
        return SaveTimes(saving=True)

    saves = BackgroundSaves(read)
    assert saves(job()) is None
    answers.set()
    deadline = time.monotonic() + 10.0
    while saves(job()) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert saves(job()) == SaveTimes(saving=True)

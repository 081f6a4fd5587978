"""Which checkpoints are a job's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("torch")

from hops_profiler.frameworks.marks import Marks


def checkpoint(folder: Path, step: int, age: float = 0.0, *, complete: bool = True) -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir()
    if complete:
        state = path / "state.json"
        state.touch()
        written = state.stat().st_mtime - age
        os.utime(state, (written, written))
    return path


@pytest.fixture
def marks(tmp_path: Path) -> Marks:
    return Marks(tmp_path, "17", "checkpoint", "state.json")


def test_without_a_request_no_checkpoint_is_the_jobs(marks: Marks) -> None:
    checkpoint(marks.folder, 10)
    assert marks.latest() is None


def test_the_latest_since_the_first_request_counts_if_it_is_complete(marks: Marks) -> None:
    checkpoint(marks.folder, 900, age=60.0)  # another training's
    marks.add("checkpoint-10")
    checkpoint(marks.folder, 10)
    scheduled = checkpoint(marks.folder, 20)
    checkpoint(marks.folder, 30, complete=False)
    (marks.folder / "checkpoint-x").mkdir()
    assert marks.latest() == scheduled


def test_what_was_saved_on_request_goes_once_the_job_goes_on_from_another(marks: Marks) -> None:
    for step in (10, 20):
        marks.add(f"checkpoint-{step}", scheduled=step == 20)
        checkpoint(marks.folder, step)
    last = checkpoint(marks.folder, 30)
    marks.clear(last)
    assert sorted(path.name for path in marks.folder.glob("c*")) == ["checkpoint-20", last.name]


def test_a_mark_that_says_something_else_removes_nothing(marks: Marks, tmp_path: Path) -> None:
    kept = tmp_path / "mine"
    kept.mkdir()
    marks.path.write_text("no time\n../mine\nmine\n/\n")
    assert marks.latest() is None
    marks.clear(tmp_path / "checkpoint-1")
    assert kept.exists()

"""Which checkpoints on request a training goes on from."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from hops_profiler.frameworks import request
from hops_profiler.frameworks.own import Own


@pytest.fixture
def own(tmp_path: Path) -> Own:
    return Own(tmp_path / "_hops-17", "state.json")


def checkpoint(folder: Path, step: int, *, complete: bool = True) -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    if complete:
        (path / "state.json").touch()
    return path


def test_the_latest_complete_one_counts(own: Own) -> None:
    assert own.latest() is None
    checkpoint(own.folder, 9)
    latest = checkpoint(own.folder, 10)
    checkpoint(own.folder, 30, complete=False)
    (own.folder / "checkpoint-x").mkdir()
    assert own.latest() == latest


def test_what_others_wrote_meanwhile_does_not(own: Own) -> None:
    latest = checkpoint(own.folder, 120)
    for folder in (own.folder.parent, own.folder.with_name("_hops-18")):
        checkpoint(folder, 340)
    assert own.latest() == latest


def test_once_the_job_goes_on_the_others_of_its_own_go(own: Own) -> None:
    scheduled = checkpoint(own.folder.parent, 5)
    checkpoint(own.folder, 10)
    checkpoint(own.folder / ".checkpoint-15.partial", 15)
    last = checkpoint(own.folder, 20)
    own.clear(last)
    assert list(own.folder.iterdir()) == [last]
    assert scheduled.exists()


def test_each_training_of_a_job_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOPS_JOB", "1")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.delenv("SLURM_STEP_ID", raising=False)
    names = [request.folder_in(tmp_path).name]
    request.ended(tmp_path)
    names.append(request.folder_in(tmp_path).name)
    monkeypatch.setenv("SLURM_STEP_ID", "3")
    names.append(request.folder_in(tmp_path).name)
    names.append(request.folder_in(tmp_path / "other").name)
    assert names == ["_hops-17", "_hops-17.2", "_hops-17.3.2", "_hops-17.3"]

"""Samples per step are kept on another number of ranks. Real frameworks: `tests/bench`."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from hops_profiler.frameworks.batch import Note, Split, keep_samples  # noqa: E402


@pytest.mark.parametrize(
    ("split", "global_batch", "expected_split"),
    [
        (Split(16, 1, 2), 16, Split(8, 1, 2)),
        (Split(16, 1, 1), 64, Split(16, 4, 1)),
        (Split(16, 1, 2), 40, Split(10, 2, 2)),  # no larger micro-batch than now
        (Split(16, 4, 4), 16, Split(4, 1, 4)),
        (Split(16, 1, 3), 16, None),
        (Split(16, 1, 4), 2, None),
    ],
)
def test_ranks_keep_the_number_of_samples_per_step(
    split: Split, global_batch: int, expected_split: Split | None
) -> None:
    assert split.keeping(global_batch) == expected_split


def test_a_step_whose_samples_cannot_be_kept_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HOPS_LR", raising=False)
    split = Split(16, 1, 3)
    assert keep_samples(split, Note(16, None)) == split
    assert "a step now has 48 samples, not 16, since 3 ranks" in capsys.readouterr().err
    monkeypatch.setenv("HOPS_LR", "0.2")
    assert keep_samples(Split(16, 1, 2), Note(16, 0.1)) == Split(16, 1, 2)
    assert "HOPS_LR is another" in capsys.readouterr().err
    assert keep_samples(Split(16, 1, 2), Note(16, 0.2)) == Split(8, 1, 2)
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"global_batch": true, "learning_rate": 1, "accumulation": 1}']
)
def test_an_unreadable_note_is_ignored(tmp_path: Path, text: str) -> None:
    assert Note.read(tmp_path) is Note.read(None) is None
    (tmp_path / "hops.json").write_text(text)
    assert Note.read(tmp_path) is None
    Note(16, 0.1).write(tmp_path)
    assert Note.read(tmp_path) == Note(16, 0.1)
    Note(16, 0.1).write(tmp_path / "missing")

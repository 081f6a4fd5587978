"""Reports in a folder where any user may create files."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hops_profiler.timing import report

from hopsd.core.report.reports import FILE_NAME

TOKEN = report.token()
NAME = report.file_name("17", 0, "n0", 0, 4242, TOKEN)


def test_a_report_is_replaced_atomically_and_readable_by_anyone(tmp_path: Path) -> None:
    umask_before = os.umask(0o077)
    try:
        for position in range(3):
            report.write(str(tmp_path), NAME, {"at": position})
    finally:
        os.umask(umask_before)
    (path,) = tmp_path.iterdir()
    assert json.loads(path.read_text()) == {"at": 2}
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_hopsd_parses_the_file_name_and_nobody_can_guess_it() -> None:
    results = FILE_NAME.fullmatch(NAME)
    assert results is not None
    assert results.groups() == ("17", "0", "n0", "0", "4242")
    assert len({report.token() for _ in range(1000)}) == 1000


def test_an_existing_file_of_that_name_neither_blocks_the_writer_nor_is_overwritten(
    tmp_path: Path,
) -> None:
    """If the name had been guessed, writing in place would hang or overwrite another file."""
    folder, victim = tmp_path / "reports", tmp_path / "victim"
    folder.mkdir()
    victim.write_text("precious")
    began = time.monotonic()
    attacks: list[Callable[[Path], None]] = [
        os.mkfifo,
        lambda path: path.hardlink_to(victim),
        lambda path: path.symlink_to(victim),
    ]
    for attack in attacks:
        path = folder / NAME
        attack(path)
        report.write(str(folder), NAME, {"at": 1})
        assert json.loads(path.read_text()) == {"at": 1}
        assert victim.read_text() == "precious"
        path.unlink()
    assert time.monotonic() - began < 30.0


def test_the_name_of_a_partial_file_cannot_be_predicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if somebody predicted it, an existing file would not be opened."""
    open_calls: list[tuple[Path, int]] = []
    real = os.open

    def note_open(path: Path, flags: int, mode: int = 0o777) -> int:
        open_calls.append((path, flags))
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", note_open)
    for _ in range(2):
        report.write(str(tmp_path), NAME, {})
    assert open_calls[0][0] != open_calls[1][0]
    assert all(flags & os.O_EXCL and flags & os.O_NOFOLLOW for _, flags in open_calls)


def test_a_full_or_missing_folder_leaves_no_file_behind(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        report.write(str(tmp_path / "missing"), NAME, {})
    (tmp_path / NAME).mkdir()
    with pytest.raises(OSError, match="directory"):
        report.write(str(tmp_path), NAME, {})
    assert [path.name for path in tmp_path.iterdir()] == [NAME]

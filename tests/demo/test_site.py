"""The folder that a demo writes to."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from examples.demo.site import DemoError, Site


def test_a_folder_with_foreign_files_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("all of it")
    with ExitStack() as stack, pytest.raises(DemoError, match="no demo wrote"):
        Site(stack, tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "all of it"


def test_remains_of_an_earlier_demo_are_removed(tmp_path: Path) -> None:
    for _ in range(2):
        with ExitStack() as stack:
            output_folder = Site(stack, tmp_path / "new").out
        assert not (output_folder / "old.log").exists()
        (output_folder / "old.log").touch()

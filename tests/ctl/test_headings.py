"""No table heading is broken within a word."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from hopsd.ctl import render

COLUMNS = ("job", "user", "name", "placement", "for", "waited", "wait/run", "restarts", "samples")
ROW = ("value-of-some-length",) * len(COLUMNS)


@pytest.mark.parametrize("width", [80, 100, 119, 120, 160])
def test_headings_are_whole_words(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), width=width, highlight=False, color_system=None)
    monkeypatch.setattr(render, "console", console)
    table = render.table(
        "Running", COLUMNS, [ROW] * 3, wide=("wait/run", "restarts"), long=("name", "placement")
    )
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    rule = next(index for index, line in enumerate(lines) if set(line.strip()) == {"─"})
    wide = set() if width >= render.WIDE else {"wait/run", "restarts"}
    assert " ".join(lines[1:rule]).split() == [name for name in COLUMNS if name not in wide]
    assert max(map(len, lines)) <= width

"""Long lists have one line per row, for any reader and on any terminal."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console

from hopsd import ctl
from hopsd.ctl import render

LARGE_COUNT = render.MAX_DRAWN_ROWS + 1
NAME = "r\N{LATIN SMALL LETTER E WITH ACUTE}seau-\N{CJK UNIFIED IDEOGRAPH-4E2D}"
COLUMNS = ("id", "user", "name", "why")


def job_table(rows: int) -> render.RenderableType:
    reason = "it waits for its turn " * 12
    return render.table("Jobs", COLUMNS, [(i, "ann", NAME, reason) for i in range(rows)])


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("rows", [3, LARGE_COUNT])
def test_no_encoding_makes_a_command_fail(
    monkeypatch: pytest.MonkeyPatch, encoding: str, rows: int
) -> None:
    raw_output = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw_output, encoding=encoding))
    monkeypatch.setattr(render, "console", Console(width=160, highlight=False))
    monkeypatch.setattr(ctl, "cli", lambda **_: render.show(job_table(rows)))
    ctl.main()
    sys.stdout.flush()
    output = raw_output.getvalue().decode(encoding)
    encoded_name = NAME.encode(encoding, "backslashreplace").decode(encoding)
    assert output.count(encoded_name) == rows
    assert r"\u25" not in output


def test_long_lists_have_one_line_per_row_under_column_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    console = Console(file=io.StringIO(), width=80, highlight=False)
    monkeypatch.setattr(render, "console", console)
    render.show(job_table(LARGE_COUNT))
    assert isinstance(console.file, io.StringIO)
    title, blank, head, rule, *rows, end = console.file.getvalue().split("\n")
    assert (title, blank, end) == ("Jobs", "", "")
    assert head.split() == [*COLUMNS]
    assert not rule.strip("\N{BOX DRAWINGS LIGHT HORIZONTAL}")
    assert [row.split()[0] for row in rows if row] == [str(number) for number in range(LARGE_COUNT)]


@pytest.mark.parametrize(("height", "rows"), [(6, 0), (10, 2), (137, 66), (206, 201), (250, 245)])
def test_as_many_rows_are_shown_as_fit(
    monkeypatch: pytest.MonkeyPatch, height: int, rows: int
) -> None:
    """A list of 201 rows has one line each; one of 200 has two lines each here."""
    monkeypatch.setattr(render, "console", Console(file=io.StringIO(), width=160))
    assert render.fitting_limit(job_table, 1000, height) == rows

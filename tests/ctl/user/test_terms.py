"""The glossary is complete, and the same in the terminal and on its page."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from hopsd.ctl.user.status import explain
from hopsd.ctl.user.terms import TERMS, WAITS
from hopsd.model.reason import ReasonCode

PAGE = Path(__file__).resolve().parents[3] / "docs" / "glossary.md"


def test_every_reason_has_advice() -> None:
    assert WAITS.keys() == {str(code) for code in ReasonCode}


def test_the_page_and_the_terminal_have_the_same_texts() -> None:
    text = PAGE.read_text()
    for word, meaning in TERMS.items():
        assert f"| {word} | {meaning} |" in text
    for code, advice in WAITS.items():
        assert f"| `{code}` | {advice} |" in text


def test_the_glossary_requires_neither_job_nor_daemon() -> None:
    ran = CliRunner().invoke(explain, ["--terms", "--socket", "/nowhere"])
    assert ran.exit_code == 0
    assert all(word in ran.output for word in ("latency ratio", "lost_to_others", "window"))

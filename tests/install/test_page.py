"""Commands are taken literally from the page."""

from __future__ import annotations

import pytest
from page import Command, commands

PAGE = "# T\n\n## A\n\n    # one --x\n\ntext `# no`\n\n    $ two\n\n## B\n\nnothing\n"


def test_commands_of_a_chapter_are_in_order() -> None:
    assert commands("A", PAGE) == [Command("one --x", root=True), Command("two", root=False)]


@pytest.mark.parametrize("chapter", ["B", "C"])
def test_a_missing_or_empty_chapter_is_an_error(chapter: str) -> None:
    with pytest.raises(LookupError):
        commands(chapter, PAGE)


@pytest.mark.parametrize(
    "chapter", ["Install", "Try it", "Upgrade", "Go back to an older release", "Remove"]
)
def test_the_page_has_the_tested_chapters(chapter: str) -> None:
    assert commands(chapter)


def test_an_installation_takes_at_most_ten_commands() -> None:
    assert len(commands("Install") + commands("Try it")) <= 10

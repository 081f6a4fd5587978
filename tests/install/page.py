"""The commands of a chapter of docs/admin.md, so that the tests run what the page says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "admin.md"


@dataclass(frozen=True, slots=True)
class Command:
    """One line of the page; ``root`` if it begins with ``#``, else a user's, with ``$``."""

    text: str
    root: bool


def commands(chapter: str, page: str | None = None) -> list[Command]:
    """Commands of a chapter of the second level, in order.

    Raises:
            LookupError: the page has no such chapter, or the chapter has no command.
    """
    text = PAGE.read_text() if page is None else page
    match = re.search(
        rf"^## {re.escape(chapter)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE
    )
    if match is None:
        raise LookupError(f"no chapter {chapter!r} in the page")
    lines = re.findall(r"^    ([#$]) (.+)$", match[1], re.MULTILINE)
    if not lines:
        raise LookupError(f"no command in the chapter {chapter!r}")
    return [Command(text, prompt == "#") for prompt, text in lines]

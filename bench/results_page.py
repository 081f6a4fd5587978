"""Pages below bench/results: what a benchmark found, with the command and commit that made them."""

from __future__ import annotations

import subprocess
from pathlib import Path

FOLDER = Path("bench/results")


def write(name: str, title: str, command: str, text: str) -> None:
    """Write ``text`` below its title, command and commit."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    head = f"# {title}\n\nWritten by `{command}` at {commit()}.\n\n"
    (FOLDER / f"{name}.md").write_text(head + text.strip() + "\n")


def commit() -> str:
    """The commit that is checked out; ``+`` where files differ from it."""
    words = ["git", "describe", "--always", "--exclude=*", "--dirty=+"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()

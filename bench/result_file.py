"""Writes a benchmark's result to bench/results/ with the command and commit that produced it."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

FOLDER = Path(__file__).parent / "results"


def write_result(name: str, title: str, text: str) -> Path:
    """Write ``bench/results/NAME.md``: Markdown ``text`` under its ``title``; return the path.

    Links in ``text`` are relative to ``docs/``.
    """
    command = " ".join(["python -m", _module(), *sys.argv[1:]])
    process = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"],
        cwd=FOLDER.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    commit = process.stdout.strip() or "unknown"
    day = datetime.now(tz=UTC).date()
    path = FOLDER / f"{name}.md"
    FOLDER.mkdir(exist_ok=True)
    text = re.sub(r"\]\((?!https?:|[#./])", "](../../docs/", text)
    path.write_text(f"# {title}\n\n`{command}` at {commit}, {day}.\n\n{text.strip()}\n")
    return path


def save_svg(path: Path, svg: str) -> None:
    """Write an ``svg`` element as a separate file, with name space and font."""
    root = '<svg xmlns="http://www.w3.org/2000/svg" font-size="11" font-family="sans-serif" '
    path.write_text(svg.replace("<svg ", root, 1), encoding="utf-8")


def _module() -> str:
    """Name of the module that was started with ``python -m``."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    name = spec.name if spec is not None else Path(sys.argv[0]).stem
    return str(name).removesuffix(".__main__")

"""Saves runs as JSON, so that a page can be rewritten without repeating them."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

Document = dict[str, Any]


def load_or_run(path: Path, make: Callable[[], Document]) -> Document:
    """Load ``path``; if it does not exist, call ``make`` and save its result there first."""
    if not path.exists():
        save(path, make())
    figures: Document = json.loads(path.read_text())
    return figures


def read(path: Path) -> Document | None:
    """Load ``path``; None if it does not exist."""
    return json.loads(path.read_text()) if path.exists() else None


def save(path: Path, figures: Document) -> None:
    """Write ``figures`` to ``path`` atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(figures))
    temporary.rename(path)


def digest(key: object) -> str:
    """Short hash of what a run depends on, for its file name."""
    return sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]

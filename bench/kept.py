"""Runs that are kept, so that a page can be written again without them."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

Found = dict[str, Any]


def kept(path: Path, make: Callable[[], Found]) -> Found:
    """What an earlier run left in ``path``; else what ``make`` finds, which is left there."""
    if not path.exists():
        keep(path, make())
    figures: Found = json.loads(path.read_text())
    return figures


def read(path: Path) -> Found | None:
    """What an earlier run left in ``path``."""
    return json.loads(path.read_text()) if path.exists() else None


def keep(path: Path, figures: Found) -> None:
    """Leave ``found`` in ``path``, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(figures))
    temporary.rename(path)


def digest(key: object) -> str:
    """A short name for what a run depends on."""
    return sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]

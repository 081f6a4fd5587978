"""Identifies the training script, which may change while the batch script stays the same."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

DIGITS = 12


def digest() -> str:
    """Hash of the main script's text; "" if there is none to read, as in a notebook.

    The script is read when PyTorch is imported: later, the file may already have been changed.
    """
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:DIGITS] if path else ""
    except OSError:
        return ""

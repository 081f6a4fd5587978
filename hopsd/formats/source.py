"""Reads a document from a file, or from standard input if the path is ``-``."""

from __future__ import annotations

import sys
from pathlib import Path

from hopsd.errors import FormatError


def read_text(path: str) -> str:
    """Return the UTF-8 text of a file or, for ``-``, of standard input.

    Raises:
        FormatError: if the file cannot be read or is not UTF-8.
    """
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return data.decode("utf-8-sig")
    except OSError as error:
        raise FormatError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: not UTF-8 at byte {error.start}") from None

"""Line numbers of a TOML file's keys, which tomllib does not keep."""

from __future__ import annotations

import re
import tomllib

_HEADER = re.compile(r"\s*\[{1,2}(?P<key>[^\]]+)\]{1,2}\s*(#.*)?$")
_KEY = re.compile(
    r"""\s*(?P<key>(?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*="""
)


class Lines:
    """Maps keys to the lines that set them; keys in an inline table or a list to their parent's.

    Reads line by line: a multi-line string that looks like a key can mislead it, so it is used
    only for messages.
    """

    def __init__(self, text: str) -> None:
        self._lines: dict[tuple[str, ...], int] = {}
        table: tuple[str, ...] = ()
        for number, line in enumerate(text.splitlines(), start=1):
            if header := _HEADER.match(line):
                table = _path(header["key"])
                self._lines.setdefault(table, number)
            elif key := _KEY.match(line):
                self._lines.setdefault(table + _path(key["key"]), number)

    def line_of(self, path: tuple[str, ...]) -> int | None:
        """The line of ``path`` or of its nearest parent; None if neither is found."""
        while path:
            if path in self._lines:
                return self._lines[path]
            path = path[:-1]
        return None


def _path(key: str) -> tuple[str, ...]:
    """Split a dotted key into its parts, without quotes; empty if ``key`` is malformed."""
    try:
        value: object = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError:
        return ()
    parts = []
    while isinstance(value, dict):
        ((part, value),) = value.items()
        parts.append(part)
    return tuple(parts)

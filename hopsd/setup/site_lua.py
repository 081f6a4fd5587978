"""Adds hopsd's uid to the list of operators in hops_site.lua."""

from __future__ import annotations

import re

_COMMENT = re.compile(r"--[^\n]*")
_LIST = re.compile(r"operators\s*=\s*\{(?P<uids>[^}]*)\}")
_PROPOSAL = re.compile(r"^(?P<indent>[ \t]*)--[ \t]*operators\s*=\s*\{[^}\n]*\},?", re.MULTILINE)
_TABLE = re.compile(r"^[ \t]*return[ \t]*\{", re.MULTILINE)


def with_operator(text: str, uid: int) -> str | None:
    """Add ``uid`` to the operators in the text; None if it has no place for a list."""
    blank = _COMMENT.sub(lambda comment: " " * len(comment[0]), text)
    if match := _LIST.search(blank):
        uids = re.findall(r"\d+", match["uids"])
        if str(uid) in uids:
            return text
        start, end = match.span("uids")
        return f"{text[:start]} {', '.join([*uids, str(uid)])} {text[end:]}"
    table = _TABLE.search(blank)
    if table is None:
        return None
    line = f"operators = {{ {uid} }},"
    if match := _PROPOSAL.search(text, table.end()):
        return text[: match.start()] + match["indent"] + line + text[match.end() :]
    return f"{text[: table.end()]}\n  {line}{text[table.end() :]}"

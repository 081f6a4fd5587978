"""Parses and validates what a process reports about a pause between its steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hopsd.core.report.rank import Pause, RankState
from hopsd.core.report.validated import number
from hopsd.errors import FormatError

STATES = (RankState.BUSY, RankState.INTERACTIVE, RankState.WAITING, RankState.STOPPED)
MAX_TEXT = 4096
MAX_SECONDS = 1e9

KEPT_LINE, KEPT_CALL, KEPT_PATH = 200, 60, 1024
"""Characters of a text that are kept, since every user's status document has the texts of many
ranks. The plugin writes no longer lines and calls."""


def parse_pause(document: Mapping[str, Any]) -> Pause | None:
    """Parse the pause in a report; None while the training makes steps, or if the plugin is older.

    Raises:
        FormatError: names the key and what is accepted.
    """
    pause = document.get("stall")
    if pause is None:
        return None
    if not isinstance(pause, dict):
        raise FormatError("stall: give an object or null")
    state, is_stalled = pause.get("state"), pause.get("stalled")
    if state not in STATES:
        raise FormatError(f"stall.state: give one of {', '.join(STATES)}")
    if not isinstance(is_stalled, bool):
        raise FormatError("stall.stalled: give true or false")
    return Pause(
        RankState(state),
        is_stalled,
        quiet=number(pause, "quiet", MAX_SECONDS),
        still_seconds=number(pause, "still", MAX_SECONDS),
        limit=number(pause, "limit", MAX_SECONDS),
        line=_text(pause, "line")[:KEPT_LINE],
        waits_in=_text(pause, "waits_in")[:KEPT_CALL],
        stacks=_text(pause, "stacks")[:KEPT_PATH],
    )


def _text(pause: Mapping[str, Any], key: str) -> str:
    """Return a text that may be shown, unprintable characters replaced; "" if absent or null."""
    text = pause.get(key)
    if text is None:
        return ""
    if not isinstance(text, str) or len(text) > MAX_TEXT:
        raise FormatError(f"stall.{key}: give up to {MAX_TEXT} characters")
    return "".join(letter if letter.isprintable() else "?" for letter in text)

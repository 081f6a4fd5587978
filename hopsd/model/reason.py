"""Why a job waits, as stated by the stage that decided so."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum


class ReasonCode(StrEnum):
    OUTSIDE_WINDOW = "outside_window"
    LIMIT = "limit"
    NO_CONFIGURATION = "no_configuration"
    LOST_TO_OTHERS = "lost_to_others"
    HELD = "held"
    DEPENDENCY = "dependency"
    PROFILING = "profiling"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Reason:
    """A code for programs and a sentence for people."""

    code: ReasonCode
    text: str


_PLURAL_END = re.compile(r"s\b")


def count_of(number: float, things: str) -> str:
    """Format a count, as in ``2 GPUs`` or ``1 GPU``.

    ``things`` is a regular plural or a phrase with one, such as ``GPU minutes to run``, in which
    the first word that ends in s is the plural.
    """
    number_text = f"{number:.12g}" if isinstance(number, float) else str(number)
    return f"{number_text} {_PLURAL_END.sub('', things, count=1) if number == 1 else things}"


_NAMED_JOBS = re.compile(
    r"((?:in use(?: outside hops)? by|asked for by|running(?: outside hops)?:|before it:"
    r"|room for session) )"
    r"([0-9_]+(?:, [0-9_]+)*)((?: and [0-9]+ more)?)"
)
"""The jobs that a site limit's reason names (hopsd/policies/reasons.py, hopsd/core/site/limits.py),
and the session for which a job was stopped (hopsd/core/interactive/session_room.py)."""


def without_jobs(text: str, visible: Collection[str]) -> str:
    """Return the ``text`` of a reason or an event with the numbers of only the ``visible`` jobs."""

    def hide(match: re.Match[str]) -> str:
        names = match[2].split(", ")
        remaining = [job for job in names if job in visible]
        suffix = ["others"] if len(remaining) < len(names) or match[3] else []
        return match[1] + ", ".join(remaining + suffix)

    return _NAMED_JOBS.sub(hide, text)


def duration(seconds: float | None) -> str:
    """Format a duration like `2h05m`, `3m20s` or `12s`."""
    if seconds is None:
        return "-"
    minutes, seconds_part = divmod(int(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{seconds_part:02}s" if minutes else f"{seconds_part}s"


def clock(timestamp: float | None) -> str:
    """Format the local time of day, with the date if it is not today."""
    if timestamp is None:
        return "-"
    local = datetime.fromtimestamp(timestamp, UTC).astimezone()
    today = local.date() == datetime.now(UTC).astimezone().date()
    return local.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S")

"""Times as people write them."""

from __future__ import annotations

from datetime import UTC, datetime


def duration(seconds: float | None) -> str:
    """Such as `2h05m`, `3m20s`, `12s`."""
    if seconds is None:
        return "-"
    minutes, rest = divmod(int(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


def clock(when: float | None) -> str:
    """Local time of day, with the date if it is not today."""
    if when is None:
        return "-"
    local = datetime.fromtimestamp(when, UTC).astimezone()
    today = local.date() == datetime.now(UTC).astimezone().date()
    return local.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S")

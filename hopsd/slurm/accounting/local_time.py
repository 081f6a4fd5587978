"""sacct's times: local ones without a time zone."""

from __future__ import annotations

from datetime import datetime

from hopsd.model import bounds


def epoch_seconds(text: str) -> float | None:
    """Convert sacct's local time; None for ``Unknown``, ``None`` and implausible times.

    Raises:
        ValueError: the text is not a time.
    """
    if text in ("Unknown", "None", ""):
        return None
    moment = datetime.fromisoformat(text).astimezone().timestamp()
    return moment if bounds.EPOCH.holds(moment) else None

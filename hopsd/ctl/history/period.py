"""Parses periods on the command line: ``--since 30d``, ``--until 2026-03-01``."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from hopsd.errors import InputError

_UNITS = {"h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_AGE = re.compile(r"([0-9]{1,6})([hdw])")
_MAX_SECONDS = 3660 * 86400.0

if TYPE_CHECKING:
    _TypeOfTime = click.ParamType[float]
else:  # before click 8.2, as in Debian 12, the class is not generic
    _TypeOfTime = click.ParamType


class TimeParam(_TypeOfTime):
    """A time in epoch seconds: an age (12h, 30d, 4w), or a date with or without a time."""

    name = "when"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        now, match = time.time(), _AGE.fullmatch(value)
        try:
            if match is not None:
                seconds = now - int(match[1]) * _UNITS[match[2]]
            else:
                seconds = datetime.fromisoformat(value).astimezone().timestamp()
        except (ValueError, OverflowError, OSError):
            seconds = -1.0
        if not now - _MAX_SECONDS <= seconds <= now:
            self.fail(
                f"{value!r}; expected an age such as 12h, 30d or 4w, or a past date such as"
                " 2026-01-31 or 2026-01-31T12:00, within ten years",
                param,
                ctx,
            )
        return seconds


since_option = click.option(
    "--since", type=TimeParam(), default="30d", show_default=True, metavar="WHEN",
    help="12h, 30d, 4w, or a date such as 2026-01-31.",
)  # fmt: skip
until_option = click.option(
    "--until", type=TimeParam(), metavar="WHEN", help="As --since; default: now."
)


def period(since: float, until: float | None) -> tuple[float, float]:
    """Return the two ends of the period.

    Raises:
        InputError: if the period is empty.
    """
    end = time.time() if until is None else until
    if since >= end:
        raise InputError("--since must be before --until")
    return since, end

"""Types of numbers and times on the command line."""

from __future__ import annotations

from datetime import datetime
from math import isfinite
from typing import Any

import click


class TimeOfDay(click.DateTime):
    """A time, with or without its date."""

    def __init__(self) -> None:
        super().__init__(
            ["%H:%M", "%H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S"]
        )

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "TIME"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        try:
            moment: datetime = super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value!r}; give a time as in 14:30 or '2026-01-31 14:30'", param, ctx)
        return moment


class FiniteRange(click.FloatRange):
    """Finite numbers in a range; click accepts nan, since comparisons with it are false."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number

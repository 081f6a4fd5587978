"""Figures of several seeds as the pages show them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev


def mean_and_spread(values: Sequence[float], form: str) -> str:
    """Mean and, of several values, standard deviation, each in the format ``form``; a sign in it is
    the mean's alone.
    """
    spread = f" ± {stdev(values):{form.lstrip('+')}}" if len(values) > 1 else ""
    return f"{fmean(values):{form}}{spread}"

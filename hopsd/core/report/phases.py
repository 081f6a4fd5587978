"""Parses and validates the phase times of an iteration in a process's report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hopsd.core.report.validated import integer, number
from hopsd.errors import FormatError
from hopsd.model import bounds
from hopsd.model.knowledge import Phases

MAX_BIN = 24 * 12
"""The last bin: with 24 bins per decade, 12 decades above a microsecond."""


def parse_phases(document: Mapping[str, Any], iterations: int, samples: float) -> Phases | None:
    """Parse the phases of the ``iterations`` timed in a report; None if there are none.

    ``samples``: the number of samples of these iterations; with gradient accumulation an iteration
    has several batches.

    Raises:
        FormatError: names the key and what is accepted.
    """
    if iterations == 0:
        return None
    basics = _object(document, "basics")
    data = _object(_object(document, "phases"), "data")
    bins = _bins(data, "bins", float(iterations))
    if sum(bins.values()) != iterations:
        raise FormatError(f"phases.data.bins: give counts of {iterations} in all")
    backward = _bins(document, "backward_by_data", bounds.PHASE_SECONDS.maximum * iterations)
    if not backward.keys() <= bins.keys():
        raise FormatError("backward_by_data: give the bins of phases.data")
    longest = bounds.PHASE_SECONDS.maximum
    times = {name: number(basics, name, longest) for name in ("t_f", "t_b", "t_u", "t_w")}
    return Phases(
        inference=document.get("kind") == "inference",
        on_device=basics.get("clock") == "cuda",
        pattern=_pattern(basics),
        batch_size=samples / iterations,
        params=number(document, "params", bounds.PARAMETERS.maximum),
        iterations=iterations,
        data_seconds=number(data, "mean", bounds.PHASE_SECONDS.maximum) * iterations,
        data_bins={bin_: int(count) for bin_, count in bins.items()},
        backward_by_data=backward,
        **times,
    )


def _pattern(basics: Mapping[str, Any]) -> int:
    pattern = integer(basics, "pattern")
    if pattern not in (1, 2):
        raise FormatError("basics.pattern: give 1 or 2")
    return pattern


def _object(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = document.get(key)
    if not isinstance(value, dict):
        raise FormatError(f"{key}: give an object")
    return value


def _bins(document: Mapping[str, Any], key: str, maximum: float) -> dict[int, float]:
    """Return the numbers by bin; JSON has the bins as text."""
    counts = _object(document, key)
    result = {}
    for bin_ in counts:
        if not (bin_.isascii() and bin_.isdigit() and len(bin_) <= 3 and int(bin_) <= MAX_BIN):
            raise FormatError(f"{key}: give bins from 0 to {MAX_BIN}")
        result[int(bin_)] = number(counts, bin_, maximum)
    return result

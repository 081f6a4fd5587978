"""An estimate with its source, the result type of all layers."""

from __future__ import annotations

from dataclasses import dataclass

from hopsd.model.reason import count_of

ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class SpeedAnswer:
    """Samples per second per GPU, and the source of the estimate."""

    per_gpu: float
    source: str


def record_count(count: int) -> str:
    """Format a number of records, as in ``3 records``."""
    return count_of(count, "records")

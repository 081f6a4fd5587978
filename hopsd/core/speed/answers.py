"""An estimate and who says so, as all layers give it."""

from __future__ import annotations

from dataclasses import dataclass

ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class Answer:
    """Samples per second per GPU, and the source of the estimate."""

    per_gpu: float
    source: str


def records_told(count: int) -> str:
    """Such as ``3 records``."""
    return f"{count} record" if count == 1 else f"{count} records"

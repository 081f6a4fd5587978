"""Figures that simulator, daemon and command line share (eq. 6 and 7)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that ended at ``end``, with its latency ratio."""

    end: float
    latency_ratio: float


def latency_ratio(wait_seconds: float, age_seconds: float) -> float:
    """Waiting time over expected run time without waiting (eq. 6)."""
    return wait_seconds / age_seconds


def raqlr(ended: Iterable[Ended], now: float, hours: float) -> float | None:
    """Mean latency ratio of the jobs that ended in the last ``hours`` (eq. 7); None of none."""
    since = now - hours * 3600.0
    ratios = [job.latency_ratio for job in ended if since < job.end <= now]
    return sum(ratios) / len(ratios) if ratios else None

"""Placements follow from job records: the same rule for every store."""

from __future__ import annotations

from dataclasses import replace

from hopsd.model.history import JobRecord
from hopsd.model.journal import Placement


def follow(last: Placement | None, record: JobRecord) -> list[Placement]:
    """Placements to write once ``record`` is saved; ``last`` is the job's open one.

    A placement is known by its job and start. One that ended unseen gets the latest time that
    it can have ended: the next one's start, or when its job was seen without it.
    """
    if last is not None and last.submit != record.submit:
        return [replace(last, end=max(last.start, record.submit)), *follow(None, record)]
    if not record.allocation:
        # Slurm's times are whole seconds: what takes these GPUs next begins in this second at
        # the earliest, by its clock.
        return [] if last is None else [_ended(last, _or(record.end, float(int(record.seen))))]
    start = record.allocation_since
    if start is None:
        start = last.start if last and last.allocation == record.allocation else record.seen
    current = Placement(
        job=record.id,
        submit=record.submit,
        start=start,
        allocation=record.allocation,
        end=record.end,
        profiling=record.profiling,
    )
    if last is None or last == current:
        return [] if last == current else [current]
    return [current] if last.start == start else [_ended(last, start), current]


def _ended(placement: Placement, at: float) -> Placement:
    return replace(placement, end=max(placement.start, at))


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value

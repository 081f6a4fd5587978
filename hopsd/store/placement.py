"""Derives placements from job records, by the same rule for every store."""

from __future__ import annotations

from dataclasses import replace
from math import modf

from hopsd.model.history import JobRecord
from hopsd.model.journal import RecordedAllocation


def follow(last: RecordedAllocation | None, record: JobRecord) -> list[RecordedAllocation]:
    """Return the placements to write with ``record``; ``last`` is the job's open placement.

    A placement is identified by its job and start. One that ended between readings gets the latest
    possible end: the job's requeue, the next placement's start, or the time when the job was first
    seen without it.
    """
    if last is not None and last.submit != record.submit:
        return [replace(last, end=max(last.start, record.submit)), *follow(None, record)]
    if not record.allocation:
        end = record.allocation_since if record.end is None else record.end
        if last is None:
            return []
        return [end_by(last, record.seen) if end is None else _end_at(last, end)]
    start = record.allocation_since
    if start is None:
        start = last.start if last and last.allocation == record.allocation else record.seen
    current = RecordedAllocation(
        job=record.id,
        submit=record.submit,
        start=start,
        allocation=record.allocation,
        end=record.end,
        profiling=record.profiling,
    )
    if last is None or last == current:
        return [] if last == current else [current]
    return [current] if last.start == start else [_end_at(last, start), current]


def end_by(placement: RecordedAllocation, time: float) -> RecordedAllocation:
    """End ``placement`` because its job was seen without it at ``time``.

    Slurm's times are whole seconds: by Slurm's clock, the next job on these GPUs starts in the
    second of ``time`` at the earliest.
    """
    _, second = modf(time)
    return _end_at(placement, second)


def _end_at(placement: RecordedAllocation, time: float) -> RecordedAllocation:
    return replace(placement, end=max(placement.start, time))

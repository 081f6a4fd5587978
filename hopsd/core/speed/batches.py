"""Speeds at an earlier batch size: what they still say about the present one.

A program's batch size per GPU may change under the same workload name, and speed per sample changes
with it. By how much is taken from shapes that were measured at both (docs/estimator.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from hopsd.model.job import Shape
from hopsd.model.knowledge import ThroughputRecord

SAME = 0.1
"""Batch sizes that differ by less than this share are the same."""

NEWEST = 6
"""Reports that decide which batch size is the present one. Two jobs of one name and different batch
sizes must not change it at each report."""

Size = Callable[[ThroughputRecord], float]


def split(
    records: Iterable[ThroughputRecord],
) -> tuple[list[ThroughputRecord], list[ThroughputRecord]]:
    """One user's records of one workload: at the present batch size, and at the one before.

    A program keeps its batch per GPU, or divides a constant one among its GPUs: whichever explains
    the records by fewer batch sizes. Records that do not say their batch count as present.
    """
    every = sorted(records, key=lambda record: record.at)
    known = [record for record in every if record.batch > 0.0]
    if not known:
        return every, []
    size: Size = min((_per_gpu, _of_all), key=lambda size: _sizes(known, size))
    # A report is one record for each node.
    reports = {(record.at, record.gpus, record.nodes, record.batch): record for record in known}
    present = _most_frequent([size(record) for record in [*reports.values()][-NEWEST:]])
    others = [record for record in known if not near(size(record), present)]
    before = [record for record in others if near(size(record), size(others[-1]))]
    left = {id(record) for record in others}
    return [record for record in every if id(record) not in left], before


def _per_gpu(record: ThroughputRecord) -> float:
    return record.batch


def _of_all(record: ThroughputRecord) -> float:
    return record.batch * record.gpus


def _sizes(records: Iterable[ThroughputRecord], size: Size) -> int:
    """The number of different batch sizes."""
    found: list[float] = []
    for each in sorted(map(size, records)):
        if not found or not near(each, found[-1]):
            found.append(each)
    return len(found)


def _most_frequent(sizes: Sequence[float]) -> float:
    """The one that most are near to; of several such, the largest."""
    return max(sizes, key=lambda one: (sum(near(one, other) for other in sizes), one))


def near(one: float, other: float) -> bool:
    """Whether two batch sizes count as the same."""
    return abs(one - other) <= SAME * max(one, other)


def carried_over(
    earlier: Mapping[Shape, float], present: Mapping[Shape, float]
) -> dict[Shape, float]:
    """Seconds of an iteration, measured at an earlier batch size, as expected at the present one.

    What an iteration's computing takes changes with the batch, its communication does not: so all
    shapes change by as many seconds as those measured at both did on average. Without any of these,
    nothing is carried over: time in proportion to the batch predicts worse than theory alone.
    Only shapes that were not measured at the present batch are in the result.
    """
    both = sorted(earlier.keys() & present.keys())
    if not both:
        return {}
    longer = sum(present[shape] - earlier[shape] for shape in both) / len(both)
    moved = {shape: seconds + longer for shape, seconds in earlier.items()}
    return {s: seconds for s, seconds in moved.items() if seconds > 0.0 and s not in present}

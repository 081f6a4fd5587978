"""Speeds at an earlier batch size, converted to the present one.

A program's batch size per GPU may change under the same workload name, and speed per sample changes
with it. Shapes measured at both sizes show by how much (docs/estimator.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from hopsd.model.job import Shape
from hopsd.model.knowledge import ThroughputRecord

SAME_SHARE = 0.1
"""Batch sizes that differ by less than this share are the same."""

NEWEST = 6
"""Number of newest reports that decide the present batch size. Two jobs of the same name with
different batch sizes must not change it with each report."""

Size = Callable[[ThroughputRecord], float]


def split(
    records: Iterable[ThroughputRecord],
) -> tuple[list[ThroughputRecord], list[ThroughputRecord]]:
    """Split a user's records of a workload into the present and the previous batch size.

    A program keeps its batch per GPU, or divides a constant total among its GPUs; we assume
    whichever explains the records with fewer batch sizes. Records without a batch count as present.
    """
    by_time = sorted(records, key=lambda record: record.at)
    with_batch = [record for record in by_time if record.batch > 0.0]
    if not with_batch:
        return by_time, []
    size: Size = min((_per_gpu, _total_batch), key=lambda size: _sizes(with_batch, size))
    # A report has one record for each node.
    reports = {
        (record.at, record.gpus, record.nodes, record.batch): record for record in with_batch
    }
    present = _most_frequent([size(record) for record in [*reports.values()][-NEWEST:]])
    different = [record for record in with_batch if not is_near(size(record), present)]
    earlier_records = [record for record in different if is_near(size(record), size(different[-1]))]
    excluded_ids = {id(record) for record in different}
    return [record for record in by_time if id(record) not in excluded_ids], earlier_records


def _per_gpu(record: ThroughputRecord) -> float:
    return record.batch


def _total_batch(record: ThroughputRecord) -> float:
    return record.batch * record.gpus


def _sizes(records: Iterable[ThroughputRecord], size: Size) -> int:
    """Return the number of different batch sizes."""
    distinct: list[float] = []
    for size_value in sorted(map(size, records)):
        if not distinct or not is_near(size_value, distinct[-1]):
            distinct.append(size_value)
    return len(distinct)


def _most_frequent(sizes: Sequence[float]) -> float:
    """Return the size that most sizes are near to; of several such, the largest."""
    return max(
        sizes, key=lambda candidate: (sum(is_near(candidate, size) for size in sizes), candidate)
    )


def is_near(first: float, second: float) -> bool:
    """Whether two batch sizes count as the same."""
    return abs(first - second) <= SAME_SHARE * max(first, second)


def carried_over(
    earlier_seconds: Mapping[Shape, float], present: Mapping[Shape, float]
) -> dict[Shape, float]:
    """Convert seconds of an iteration, measured at an earlier batch size, to the present one.

    The compute time of an iteration changes with the batch, but its communication time does not: so
    all shapes change by the number of seconds by which those measured at both sizes changed on
    average. Without such shapes, nothing is converted: scaling time with the batch predicts worse
    than theory alone. The result has only shapes that were not measured at the present batch.
    """
    common = sorted(earlier_seconds.keys() & present.keys())
    if not common:
        return {}
    extra_seconds = sum(present[shape] - earlier_seconds[shape] for shape in common) / len(common)
    shifted_seconds = {shape: seconds + extra_seconds for shape, seconds in earlier_seconds.items()}
    return {
        s: seconds for s, seconds in shifted_seconds.items() if seconds > 0.0 and s not in present
    }

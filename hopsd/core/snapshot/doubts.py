"""Consistency checks on a training's figures.

If two figures differ by a whole factor, one of them counts something other than samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hopsd.core.submission.comment import Comment
from hopsd.model.history import JobRecord
from hopsd.model.ids import GpuType, UserName
from hopsd.model.knowledge import ThroughputRecord

WHOLE = 0.03
"""Relative distance up to which a ratio counts as a whole number."""

SAME_TIME = 0.1
"""Relative distance up to which two iterations take the same time."""

MAX_RATIO = 1000
"""Larger ratios have other causes than different ideas of a sample."""

REMEDY = "batch= in its comment settles it"

UNKNOWN_TIME = (
    "its speed is unknown: what its loop does between some iterations may be evaluation or part of"
    " the training; to show which, call eval() and use no_grad() in evaluations"
)


def doubts_of_job(comment: Comment, record: JobRecord) -> Iterator[str]:
    """Yield notes on doubtful figures about a job's progress."""
    # After a restart, a job that saves may have lost all its progress.
    counts = record.saved is False or (record.saved is not None and not record.restarts)
    if counts and not record.samples_done:
        yield f"its reports do not show how many samples an iteration trains on: {REMEDY}"
    if record.time_known is False:
        yield UNKNOWN_TIME
    declared_samples, loop_samples = comment.samples, record.samples_planned
    if (
        declared_samples
        and loop_samples
        and (factor := whole_factor(loop_samples / declared_samples))
    ):
        relation = f"{factor} times" if loop_samples > declared_samples else f"1/{factor} of"
        yield (
            f"its loops show {loop_samples:,.0f} samples in all, {relation} its"
            f" samples={declared_samples:g}:"
            f" one of the two may count something else; {REMEDY}"
        )


def doubtful_batch(records: Iterable[ThroughputRecord]) -> str:
    """Return a note if a user's batch changed by a whole factor while an iteration takes as long.

    Compares each user's record of a workload with the previous one of the same shape. Returns "" if
    no batch changed that way.
    """
    latest: dict[tuple[UserName, GpuType, int, int], ThroughputRecord] = {}
    note = ""
    for record in sorted(records, key=lambda record: record.at):
        if record.batch <= 0.0:
            continue
        shape = record.user, record.gpu_type, record.gpus, record.nodes
        before = latest.get(shape)
        if before is not None and whole_factor(record.batch / before.batch):
            old_seconds, new_seconds = before.batch / before.per_gpu, record.batch / record.per_gpu
            if abs(new_seconds - old_seconds) <= SAME_TIME * max(new_seconds, old_seconds):
                note = (
                    f"samples of an iteration went from {before.batch:g} to {record.batch:g} per"
                    f" GPU while it takes as long: if the batch size is the same, {REMEDY}"
                )
        latest[shape] = record
    return note


def whole_factor(ratio: float) -> int | None:
    """Return the whole number (2 to MAX_RATIO) near ``ratio`` or its inverse; None if none is."""
    if not 1.0 / MAX_RATIO <= ratio <= MAX_RATIO:
        return None
    ratio = max(ratio, 1.0 / ratio)
    factor = round(ratio)
    return factor if factor > 1 and abs(ratio - factor) <= WHOLE * factor else None

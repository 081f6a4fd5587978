"""A training's progress: what its reports say, checked against its GPU time in Slurm.

Reports and ``samples=`` come from the job's user and can be false. Slurm's record of the GPUs that
the job held, and for how long, cannot. From this time and the speeds that hops plans with follows a
number of samples that the job should have trained. A report is believed if it is between this
number divided by :data:`SLOWER` and :data:`FASTER` times this number; a job that reports less
counts as having trained this number.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from hopsd.core.speed.speed_answer import ASSUMED
from hopsd.core.speed.throughput import per_gpu
from hopsd.model.history import JobRecord
from hopsd.model.ids import GpuType
from hopsd.model.job import ThroughputTable

FASTER = 1.2
"""Factor by which a job may be faster than its speeds say: a server may be faster than its type,
and shapes never measured are estimated within a tenth (docs/estimator.md). With 1.5, jobs that
always reported 99.9 % ended 1.12 times sooner (docs/lies.md)."""

SLOWER = 1.5
"""Factor by which a job may be slower: contention, stalls and evaluations are no lies, and speeds
leave them out. If a job reports even less, its GPU time counts without this tolerance."""

MAX_EXCUSE = 0.5
"""Restarts, spread GPUs and slow servers excuse a job that trained less than its GPU time allows,
but only down to this share, since their costs are known from the job's own reports."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A job's progress. ``samples``: the samples that count as trained.

    ``due``: the samples that count when hops checks whether the job has outlived its claim, at
    least ``samples``.
    """

    samples: float
    due: float


def progress(
    record: JobRecord,
    tables: Mapping[GpuType, ThroughputTable],
    server_factors: Collection[float] = (),
) -> Progress:
    """Return a job's progress.

    ``tables`` and ``server_factors`` are the speeds that hops plans with. An assumed speed does not
    limit reports.
    """
    if record.run_seconds <= 0.0:
        return Progress(record.samples_done, record.samples_done)
    gpus = max(1, round(record.attained_gpu_seconds / record.run_seconds))
    due_samples = usual = possible_samples = 0.0
    is_limited = bool(record.run_seconds_by_type)
    for gpu_type, seconds in record.run_seconds_by_type.items():
        table = tables.get(gpu_type)
        is_limited = is_limited and table is not None
        if table is None:
            continue
        # Include one GPU's speed: a job that makes several look slow gains nothing by it.
        shapes = [(gpus, 1), *([(gpus, 2), (1, 1)] if gpus > 1 else [])]
        is_limited = is_limited and all(table.source_of(*shape) != ASSUMED for shape in shapes)
        speeds = [per_gpu(table, *shape) for shape in shapes]
        positive = [speed for speed in speeds[:2] if speed > 0.0]
        due_samples += seconds * gpus * min(positive, default=0.0)
        usual += seconds * gpus * max(positive, default=0.0)
        possible_samples += seconds * gpus * max(speeds)
    loading = record.restart_seconds * (1 + record.restarts)
    due_samples *= max(0.0, 1.0 - loading / record.run_seconds) * min(server_factors, default=1.0)
    is_limited = is_limited and possible_samples > 0.0
    samples = (
        min(record.samples_done, FASTER * possible_samples) if is_limited else record.samples_done
    )
    due = max(due_samples, MAX_EXCUSE * usual)
    return Progress(samples, due if samples < due / SLOWER else samples)

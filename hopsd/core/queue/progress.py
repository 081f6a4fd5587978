"""How far a training has come: what its reports say, held to the GPU time that Slurm gave it.

Reports and ``samples=`` come from the job's user, and can be false. Slurm's own record of which
GPUs the job held, and for how long, is not the user's. With the speeds that hops plans with, that
time makes a number of samples that the job should have trained; what it says is believed from
that over :data:`SLOWER` to :data:`FASTER` times that, and a job that reports less counts as one
that has trained that number.
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
and shapes never measured are estimated within a tenth (docs/estimator.md). Where 1.5 was believed,
jobs that always said 99.9 % ended 1.12 times sooner (docs/lies.md)."""

SLOWER = 1.5
"""The same for slower: contention, stalls and evaluations, which speeds leave out, are no lies. The
GPU time of a job that reports still less counts without this tolerance."""

MAX_EXCUSE = 0.5
"""Restarts, spread GPUs and slow servers excuse a job that trained less than its GPU time makes,
down to this share: what they are like is known from its reports, too."""


@dataclass(frozen=True, slots=True)
class Progress:
    """``samples``: the samples that count as trained. ``due``: the samples that count where hops
    asks whether a job has outlived its claim; at least ``samples``.
    """

    samples: float
    due: float


def progress(
    record: JobRecord,
    tables: Mapping[GpuType, ThroughputTable],
    server_factors: Collection[float] = (),
) -> Progress:
    """``tables``, ``server_factors``: the speeds that hops plans with. One that is assumed limits
    no report.
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
        # One GPU's speed, too: who lets several look slow is not to be held to that.
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

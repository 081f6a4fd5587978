"""How far a training has come: what its reports say, held to the GPU time that Slurm gave it.

Reports and ``samples=`` come from the job's user, and can be false. Slurm's own record of which
GPUs the job held, and for how long, is not the user's. With the speeds that hops plans with, that
time makes a number of samples that the job should have trained; what it says is believed within
:data:`TOLERANCE` of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import inf

from hopsd.core.speed.answers import ASSUMED
from hopsd.core.speed.throughput import per_gpu
from hopsd.model.history import JobRecord
from hopsd.model.ids import GpuType
from hopsd.model.job import ThroughputTable

TOLERANCE = 1.5
"""Factor by which a job may be faster or slower than its speeds say: contention, stalls and shapes
never measured are no lies. What a liar gains within it: docs/lies.md."""


SLOWEST_SERVER = 0.5
"""A server that is slower still excuses no more than one that is half as fast: what servers are
like is known from reports, too."""


@dataclass(frozen=True, slots=True)
class Progress:
    """``done``: the samples that count as trained. ``due``: the samples that count where hops asks
    whether a job has outlived its claim; at least ``done``.
    """

    done: float
    due: float


def progress(
    record: JobRecord,
    tables: Mapping[GpuType, ThroughputTable],
    server_factors: Collection[float] = (),
) -> Progress:
    """``tables``, ``server_factors``: the speeds that hops plans with. One that is assumed limits
    no report.
    """
    least, most = _of_gpu_time(record, tables)
    least *= max(min(server_factors, default=1.0), SLOWEST_SERVER)
    done = min(record.samples_done, TOLERANCE * most)
    return Progress(done, max(done, least / TOLERANCE))


def _of_gpu_time(
    record: JobRecord, tables: Mapping[GpuType, ThroughputTable]
) -> tuple[float, float]:
    """The least and the most samples that the job can have trained on what it held; at most
    infinity, where a speed is assumed or a type has none.
    """
    if record.run_seconds <= 0.0:
        return 0.0, inf
    gpus = max(1, round(record.attained_gpu_seconds / record.run_seconds))
    loading = record.restart_seconds * (1 + record.restarts)
    trained_share = max(0.0, 1.0 - loading / record.run_seconds)
    least = most = 0.0
    for gpu_type, seconds in record.run_seconds_by_type.items():
        table = tables.get(gpu_type)
        shapes = [(gpus, 1), *([(gpus, 2)] if gpus > 1 else [])]
        speeds = [speed for shape in shapes if table and (speed := per_gpu(table, *shape)) > 0.0]
        if table is None or not speeds:
            most = inf
            continue
        least += trained_share * seconds * gpus * min(speeds)
        most += seconds * gpus * max(speeds)
        if any(table.source_of(*shape) == ASSUMED for shape in shapes):
            most = inf
    return least, most

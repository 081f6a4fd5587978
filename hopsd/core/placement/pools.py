"""GPU types as pools, and where a job could run on an idle cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hopsd.model.cluster import Node
from hopsd.model.ids import GpuType
from hopsd.model.job import Job


@dataclass(frozen=True, slots=True)
class Pool:
    """All schedulable servers of one GPU type; counts are of all their GPUs, idle or not."""

    gpu_type: GpuType
    gpus: int
    largest: int


Pools = Mapping[GpuType, Pool]


def pools_of(nodes: Iterable[Node]) -> dict[GpuType, Pool]:
    """Pools by GPU type."""
    counts: dict[GpuType, list[int]] = {}
    for node in nodes:
        counts.setdefault(node.gpu_type, []).append(node.gpus)
    return {t: Pool(t, sum(gpus), max(gpus)) for t, gpus in counts.items()}


def could_run_on(job: Job, pool: Pool) -> bool:
    """Whether the idle pool could hold the job's smallest requirement.

    In its largest server, or spread over servers where the job knows how fast that is.
    """
    return bool(pools_for(job, {pool.gpu_type: pool}))


def pools_for(job: Job, pools: Pools) -> list[Pool]:
    """The pools that it could run on."""
    smallest = min(job.reqs)
    return [
        pool
        for pool in pools.values()
        if (table := job.throughput.get(pool.gpu_type)) is not None
        and (smallest <= pool.largest or (bool(table.distributed) and smallest <= pool.gpus))
    ]


def could_run(job: Job, pools: Pools) -> bool:
    """Whether an idle cluster could run the job; False: ``no_configuration``."""
    return bool(pools_for(job, pools))

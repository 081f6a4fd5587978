"""Generated clusters and queues: 4 GPU types, servers of 8, a queue twice the service window.

About 45 % of the jobs are sensitive (rho above 1.4), requirement sets hold up to 8 sizes in
1..16, priorities are log-normal over about three decades.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from hopsd.model.cluster import Node
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, ThroughputTable
from hopsd.model.plan import RoundInfo, Snapshot

TYPES = tuple(GpuType(name) for name in ("a100", "v100", "rtx3090", "t4"))
SPEED = {"a100": 1.0, "v100": 0.55, "rtx3090": 0.7, "t4": 0.3}
SERVER_GPUS = 8
COUNTS = (1, 2, 4, 8)


class Case(StrEnum):
    """``IDLE``: a round's first plan. ``FRAGMENTED``: about 35 % of the GPUs are idle."""

    IDLE = "a"
    FRAGMENTED = "b"


class Noise(StrEnum):
    """Server factors: none, one factor a server, one a job and server (sigma 3 %)."""

    NONE = "none"
    SERVER = "rank-1"
    PAIR = "independent"


def snapshot(gpus: int, case: Case, noise: Noise, seed: int, jobs: int | None = None) -> Snapshot:
    """A cluster of ``gpus`` and a queue of ``jobs`` (default: about twice the window)."""
    rng = np.random.default_rng(seed)
    nodes = _nodes(gpus, case, rng)
    count = jobs or max(8, gpus // 2)
    shared = rng.normal(1.0, 0.03, len(nodes)).clip(0.8, 1.2)
    queue = tuple(_job(i, nodes, noise, shared, rng) for i in range(count))
    return Snapshot(1e6, RoundInfo(first=case is Case.IDLE, seconds=1800.0), nodes, queue)


def _nodes(gpus: int, case: Case, rng: np.random.Generator) -> tuple[Node, ...]:
    servers = gpus // SERVER_GPUS
    nodes = []
    for i in range(servers):
        idle = SERVER_GPUS if case is Case.IDLE else int(rng.choice(9, p=_IDLE_SHARES))
        gpu_type = TYPES[i * len(TYPES) // servers]
        nodes.append(Node(NodeName(f"n{i}"), gpu_type, SERVER_GPUS, idle))
    return tuple(nodes)


# Mean 2.8 of 8: some servers full, a few empty, most with a remainder.
_IDLE_SHARES = (0.22, 0.14, 0.16, 0.14, 0.12, 0.08, 0.06, 0.04, 0.04)


def _job(
    i: int, nodes: tuple[Node, ...], noise: Noise, shared: np.ndarray, rng: np.random.Generator
) -> Job:
    sizes = rng.integers(1, 9)
    low = int(rng.choice([1, 1, 1, 2, 2, 4, 8]))
    reqs = sorted({low, *rng.integers(low, 17, sizes - 1).tolist()})
    rho = float(rng.uniform(1.45, 3.0) if rng.random() < 0.45 else rng.uniform(1.02, 1.35))
    loss = float(rng.uniform(0.0, 0.03))
    tables = {}
    for gpu_type in TYPES:
        one = 100.0 * SPEED[gpu_type] * float(rng.uniform(0.7, 1.3))
        aggregated = {k: one * (1 - loss * np.log2(k)) for k in COUNTS}
        distributed = {d: aggregated[2] / rho * (1 - 0.02 * (d - 2)) for d in (2, 3, 4)}
        tables[gpu_type] = ThroughputTable(aggregated, distributed)
    factors = shared
    if noise is Noise.PAIR:
        factors = rng.normal(1.0, 0.03, len(nodes)).clip(0.8, 1.2)
    names = [node.name for node in nodes]
    return Job(
        id=JobId(str(i)),
        user=UserName(f"u{i % 20}"),
        submit=float(rng.uniform(0, 1e5)),
        wait_seconds=float(3600 * rng.lognormal(0.0, 1.0)),
        age_seconds=float(3600 * rng.lognormal(0.5, 1.0)),
        reqs=tuple(reqs),
        throughput=tables,
        server_factor={}
        if noise is Noise.NONE
        else dict(zip(names, factors.tolist(), strict=True)),
    )

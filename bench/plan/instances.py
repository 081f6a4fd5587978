"""Generated clusters and queues: 4 GPU types, servers of 8, a queue twice the service window.

About 45 % of the jobs are sensitive (rho above 1.4), requirement sets hold up to 8 sizes in
1..16, priorities are log-normal over about three decades.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum

import numpy as np

from hopsd.core.placement.available import kept_to_counts
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, Node, ThroughputTable
from hopsd.model.plan import RoundInfo, Snapshot
from hopsd.model.rules import Limit, Rules, ShapeRule

TYPES = tuple(GpuType(name) for name in ("a100", "v100", "rtx3090", "t4"))
SPEED = {"a100": 1.0, "v100": 0.55, "rtx3090": 0.7, "t4": 0.3}
SERVER_GPUS = 8
COUNTS = (1, 2, 4, 8)


class Case(StrEnum):
    """``IDLE`` is a round's first plan; in ``FRAGMENTED`` about 35 % of the GPUs are idle."""

    IDLE = "a"
    FRAGMENTED = "b"


class Noise(StrEnum):
    """Server factors: none, one per server, or one per job and server (sigma 3 %)."""

    NONE = "none"
    SERVER = "rank-1"
    PAIR = "independent"


class Demands(StrEnum):
    """What jobs demand besides GPUs.

    ``SHAPES``: a third of the jobs are even, half of these with a count on each server, and a third
    run on one server. ``RULES`` adds limits for a third of the users. ``SITE`` also adds cores and
    memory, of which some jobs ask for much, nodes that some jobs may not use, and exclusive use for
    one job in 50.
    """

    NONE = "none"
    SHAPES = "shapes"
    RULES = "rules"
    SITE = "site"


def gap_of_bar(gpus: int) -> float:
    """Return the gap that plans of this size should reach quickly."""
    return 0.01 if gpus <= 10_000 else 0.015 if gpus <= 40_000 else 0.02


def snapshot(
    gpus: int,
    case: Case,
    noise: Noise,
    seed: int,
    jobs: int | None = None,
    demands: Demands = Demands.NONE,
) -> Snapshot:
    """Generate a cluster of ``gpus`` and a queue of ``jobs`` (default: about twice the window)."""
    instance = _snapshot(gpus, case, noise, seed, jobs)
    if demands is Demands.NONE:
        return instance
    rng = np.random.default_rng((seed, 1))
    instance = replace(
        instance,
        jobs=tuple(_add_rules(job, i, rng) for i, job in enumerate(instance.jobs)),
        limits=() if demands is Demands.SHAPES else _limits(instance, gpus),
    )
    return _with_cores(instance, rng) if demands is Demands.SITE else instance


def _snapshot(gpus: int, case: Case, noise: Noise, seed: int, jobs: int | None) -> Snapshot:
    rng = np.random.default_rng(seed)
    nodes = _nodes(gpus, case, rng)
    count = jobs or max(8, gpus // 2)
    factors = rng.normal(1.0, 0.03, len(nodes)).clip(0.8, 1.2).tolist()
    # As in hopsd, all jobs of a workload share one mapping.
    names = () if noise is Noise.NONE else (node.name for node in nodes)
    factor_by_node = dict(zip(names, factors, strict=noise is not Noise.NONE))
    queue = tuple(_job(i, nodes, noise, factor_by_node, rng) for i in range(count))
    return Snapshot(1e6, RoundInfo(first=case is Case.IDLE, seconds=1800.0), nodes, queue)


def _add_rules(job: Job, i: int, rng: np.random.Generator) -> Job:
    shape = (ShapeRule.ANY, ShapeRule.EVEN, ShapeRule.NODE)[i % 3]
    per_node = int(rng.choice([1, 2, 4, 8]))
    has_per_node = shape is ShapeRule.EVEN and rng.random() < 0.5
    rules = Rules(shape=shape, per_node=per_node if has_per_node else None)
    return kept_to_counts(
        replace(job, rules=rules if rules.counts(job.reqs) else Rules(shape=shape))
    )


def _limits(instance: Snapshot, gpus: int) -> tuple[Limit, ...]:
    """Limit every third user to half of an equal share, and every sixth also to few jobs."""
    users = sorted({job.user for job in instance.jobs})
    return tuple(
        Limit(
            f"QOS small, {user}",
            frozenset(job.id for job in instance.jobs if job.user == user),
            gpus=gpus // (2 * len(users)),
            count=gpus // (8 * len(users)) if n % 2 else None,
        )
        for n, user in enumerate(users[::3])
    )


def _with_cores(instance: Snapshot, rng: np.random.Generator) -> Snapshot:
    """Give nodes 8 cores and 64 GB per GPU, partly taken by plain jobs."""
    nodes = []
    for node in instance.nodes:
        share = 1.0 - 0.4 * float(rng.random() < 0.3)
        nodes.append(
            replace(
                node,
                cores=8 * SERVER_GPUS,
                idle_cores=int(8 * node.idle * share),
                memory_mb=64_000 * SERVER_GPUS,
                idle_memory_mb=float(int(64_000 * node.idle * share)),
            )
        )
    names = [node.name for node in nodes]
    jobs = []
    for job in instance.jobs:
        has_node_list = rng.random() < 0.2
        rules = replace(
            job.rules,
            cores_per_gpu=float(rng.choice([4, 6, 8, 8, 12, 16])),
            memory_mb_per_gpu=float(rng.choice([0, 30_000, 60_000, 100_000])),
            memory_mb_per_node=float(rng.choice([0, 0, 64_000])),
            exclusive=bool(rng.random() < 0.02),
            nodes=frozenset(name for name in names if rng.random() < 0.7)
            if has_node_list
            else None,
        )
        jobs.append(replace(job, rules=rules))
    return replace(instance, nodes=tuple(nodes), jobs=tuple(jobs))


def _nodes(gpus: int, case: Case, rng: np.random.Generator) -> tuple[Node, ...]:
    servers = gpus // SERVER_GPUS
    nodes = []
    for i in range(servers):
        idle = SERVER_GPUS if case is Case.IDLE else int(rng.choice(9, p=_IDLE_SHARES))
        gpu_type = TYPES[i * len(TYPES) // servers]
        nodes.append(Node(NodeName(f"n{i}"), gpu_type, SERVER_GPUS, idle))
    return tuple(nodes)


# Shares of servers with 0 to 8 idle GPUs, 2.8 on average: some are full, few empty, most neither.
_IDLE_SHARES = (0.22, 0.14, 0.16, 0.14, 0.12, 0.08, 0.06, 0.04, 0.04)


def _job(
    i: int,
    nodes: tuple[Node, ...],
    noise: Noise,
    factor_by_node: Mapping[NodeName, float],
    rng: np.random.Generator,
) -> Job:
    sizes = rng.integers(1, 9)
    low = int(rng.choice([1, 1, 1, 2, 2, 4, 8]))
    reqs = sorted({low, *rng.integers(low, 17, sizes - 1).tolist()})
    rho = float(rng.uniform(1.45, 3.0) if rng.random() < 0.45 else rng.uniform(1.02, 1.35))
    loss = float(rng.uniform(0.0, 0.03))
    tables = {}
    for gpu_type in TYPES:
        base = 100.0 * SPEED[gpu_type] * float(rng.uniform(0.7, 1.3))
        by_gpus = {k: base * (1 - loss * np.log2(k)) for k in COUNTS}
        by_servers = {d: by_gpus[2] / rho * (1 - 0.02 * (d - 2)) for d in (2, 3, 4)}
        tables[gpu_type] = ThroughputTable(by_gpus, by_servers)
    factors = factor_by_node
    if noise is Noise.PAIR:
        noise_factors = rng.normal(1.0, 0.03, len(nodes)).clip(0.8, 1.2)
        factors = dict(zip((node.name for node in nodes), noise_factors.tolist(), strict=True))
    return Job(
        id=JobId(str(i)),
        user=UserName(f"u{i % 20}"),
        submit=float(rng.uniform(0, 1e5)),
        wait_seconds=float(3600 * rng.lognormal(0.0, 1.0)),
        age_seconds=float(3600 * rng.lognormal(0.5, 1.0)),
        reqs=tuple(reqs),
        throughput=tables,
        server_factor=factors,
    )

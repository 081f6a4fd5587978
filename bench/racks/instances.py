"""Clusters of blocks of 18 nodes with 4 GPUs, and queues with many rack-bound jobs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, Node, ThroughputTable
from hopsd.model.plan import RoundInfo, Snapshot
from hopsd.model.rules import Limit, Rules, ShapeRule

GB200 = GpuType("gb200")
BLOCK_NODES, NODE_GPUS = 18, 4
_SEGMENTS = (1, 2, 3, 4, 6, 8, 9, 12, 16, 18)


def planted_snapshot(nodes: int, seed: int) -> Snapshot:
    """Generate rigid jobs with ``--segment`` that can fill all free nodes exactly.

    Each block's free nodes are cut into segments at random, and segments of one size from several
    blocks are joined into jobs of 1 to 4 segments.
    """
    rng = np.random.default_rng((nodes, seed))
    cluster = [_node(index, int(rng.random() < 0.8) * NODE_GPUS) for index in range(nodes)]
    free: dict[str, int] = defaultdict(int)
    for node in cluster:
        free[node.leaf] += node.idle // NODE_GPUS
    segments: dict[int, int] = defaultdict(int)
    for count in free.values():
        remaining = count
        while remaining:
            segment = int(rng.choice([s for s in _SEGMENTS if s <= remaining]))
            segments[segment] += 1
            remaining -= segment
    jobs: list[Job] = []
    for segment, count in segments.items():
        remaining = count
        while remaining:
            groups = min(remaining, int(rng.integers(1, 5)))
            jobs.append(_rigid(len(jobs), segment, groups, rng))
            remaining -= groups
    queue = tuple(jobs[index] for index in rng.permutation(len(jobs)).tolist())
    return Snapshot(1e6, RoundInfo(first=True, seconds=1800.0), tuple(cluster), queue)


def mixed_snapshot(gpus: int, rack_bound: float, seed: int, idle: float = 1.0) -> Snapshot:
    """Generate a queue of about twice the window; a share ``rack_bound`` of the jobs asks for
    segments or for few switches. ``idle`` is the share of idle nodes.
    """
    rng = np.random.default_rng((gpus, seed))
    cluster = [
        _node(index, NODE_GPUS if rng.random() < idle else int(rng.integers(0, NODE_GPUS)))
        for index in range(gpus // NODE_GPUS)
    ]
    jobs = [_elastic(index, rng.random() < rack_bound, rng) for index in range(gpus // 5)]
    return Snapshot(1e6, RoundInfo(first=True, seconds=1800.0), tuple(cluster), tuple(jobs))


def demanding_snapshot(gpus: int, rack_bound: float, seed: int, idle: float = 1.0) -> Snapshot:
    """:func:`mixed_snapshot` with limits for a third of the users, and 8 cores and 64 GB per GPU.
    Some jobs ask for more, and 40 % are taken on 30 % of the nodes.
    """
    snapshot = mixed_snapshot(gpus, rack_bound, seed, idle)
    rng = np.random.default_rng((gpus, seed, 1))
    nodes = []
    for node in snapshot.nodes:
        share = node.idle * (0.6 if rng.random() < 0.3 else 1.0)
        nodes.append(
            replace(
                node,
                cores=8 * NODE_GPUS,
                idle_cores=int(8 * share),
                memory_mb=64_000 * NODE_GPUS,
                idle_memory_mb=64_000.0 * share,
            )
        )
    jobs = []
    for job in snapshot.jobs:
        rules = replace(
            job.rules,
            cores_per_gpu=float(rng.choice([4, 6, 8, 8, 12, 16])),
            memory_mb_per_gpu=float(rng.choice([0, 30_000, 60_000, 100_000])),
        )
        jobs.append(replace(job, rules=rules))
    users = sorted({job.user for job in jobs})
    limits = tuple(
        Limit(
            f"QOS small, {user}",
            frozenset(job.id for job in jobs if job.user == user),
            gpus=gpus // (2 * len(users)),
        )
        for user in users[::3]
    )
    return replace(snapshot, nodes=tuple(nodes), jobs=tuple(jobs), limits=limits)


def _node(index: int, idle: int) -> Node:
    block = index // BLOCK_NODES
    switches = f"spine{block // 8}", f"block{block}"
    return Node(NodeName(f"n{index:05d}"), GB200, NODE_GPUS, idle, switches=switches)


def _rigid(number: int, segment: int, groups: int, rng: np.random.Generator) -> Job:
    rules = Rules(shape=ShapeRule.EVEN, per_node=NODE_GPUS, segment=segment)
    return replace(_job(number, rng), reqs=(segment * groups * NODE_GPUS,), rules=rules)


def _elastic(number: int, rack_bound: bool, rng: np.random.Generator) -> Job:
    job = _job(number, rng)
    if not rack_bound:
        low = int(rng.choice([1, 1, 1, 2, 2, 4]))
        reqs = {low, *rng.integers(low, 13, rng.integers(0, 4)).tolist()}
        return replace(job, reqs=tuple(sorted(reqs)))
    segment = int(rng.choice([2, 3, 4, 6, 8, 9, 16]))
    groups = {1, *rng.integers(1, 5, rng.integers(0, 3)).tolist()}
    nodes = sorted(segment * count for count in groups)
    rules = Rules(shape=ShapeRule.EVEN, per_node=NODE_GPUS, segment=segment)
    if rng.random() < 0.3:
        rules = replace(rules, segment=None, max_switches=int(rng.choice([1, 1, 2])))
    across_racks = {1: 1.0, 2: 0.9, 4: 0.8} if rng.random() < 0.5 else {}
    return replace(
        job, reqs=tuple(NODE_GPUS * count for count in nodes), rules=rules, across=across_racks
    )


def _job(number: int, rng: np.random.Generator) -> Job:
    base = 100.0 * float(rng.uniform(0.7, 1.3))
    loss, rho = float(rng.uniform(0.0, 0.03)), float(rng.uniform(1.02, 1.35))
    by_gpus = {k: base * (1 - loss * np.log2(k)) for k in (1, 2, 4)}
    by_nodes = {d: by_gpus[2] / rho * (1 - loss * np.log2(d)) for d in (2, 4, 8, 16, 32, 64)}
    return Job(
        id=JobId(str(number)),
        user=UserName(f"u{number % 20}"),
        submit=float(rng.uniform(0, 1e5)),
        wait_seconds=float(3600 * rng.lognormal(0.0, 1.0)),
        age_seconds=float(3600 * rng.lognormal(0.5, 1.0)),
        reqs=(1,),
        throughput={GB200: ThroughputTable(by_gpus, by_nodes)},
    )

"""The Themis paper's clusters, and workloads with the shape of its two (section 6.1).

Its traces are not published as apps, so we draw apps by the paper's numbers of jobs and GPUs per
job, scaled down in number and length so that a run takes seconds. Half of the apps are bound by the
network by default; the two kinds are those of its table 1.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from hopsd.model.ids import AppName, GpuType, JobId, NodeName, UserName, WorkloadName
from hopsd.model.job import ThroughputTable
from hopsd.model.scenario import Cluster, Server, Workload, WorkloadJob

K80 = GpuType("k80")
NETWORK, COMPUTE = WorkloadName("vgg16"), WorkloadName("inception-v3")
SLOWDOWN = {NETWORK: 103.6 / 80.4, COMPUTE: 1.0}
"""S across servers: 4 GPUs in one server over 4 in two (table 1; 242 and 243 count as equal)."""

TABLES = {
    name: {K80: ThroughputTable({1: 1.0}, {2: 1.0 / slowdown})}
    for name, slowdown in SLOWDOWN.items()
}
"""One sample is one second of one GPU."""

GPU_HOURS = {1: (0.5, 6.0), 2: (2.0, 40.0)}
"""Assumption: log-uniform work of a job of workload 1, and of an app of workload 2. The paper's
median app takes 11.5 GPU days.
"""
HOURS = 3.0
"""Time over which apps arrive, as a Poisson process."""
SINGLE = 0.1
"""Share of apps with one job (section 2.2)."""


def testbed_cluster(contention: int) -> Cluster:
    """8 servers of 2 GPUs and 12 of 4; under contention, a half or a quarter of each kind."""
    return _cluster([2] * (8 // contention) + [4] * (12 // contention))


def for_liars() -> Cluster:
    """64 GPUs: one server of 8, the others of 2 (section 6.3)."""
    return _cluster([8] + [2] * 28)


def _cluster(sizes: Sequence[int]) -> Cluster:
    return Cluster(tuple(Server(NodeName(f"n{i}"), K80, gpus) for i, gpus in enumerate(sizes)))


def apps(kind: int, count: int, network: float, seed: int) -> Workload:
    """Draw apps. ``kind`` 1: jobs of 1 or 2 GPUs that all run to the end; 2: successive halving."""
    rng = random.Random(seed)
    clock, jobs = 0.0, list[WorkloadJob]()
    for number in range(count):
        low, high = GPU_HOURS[kind]
        work = 3600.0 * low * (high / low) ** rng.random()
        model = NETWORK if rng.random() < network else COMPUTE
        shape = _search_shape(rng) if kind == 1 else _halving_shape(rng)
        phases = max(phase for phase, _ in shape)
        for phase, reqs in shape:
            parts = 1 if kind == 1 else phases * sum(job_phase == phase for job_phase, _ in shape)
            jobs.append(
                WorkloadJob(
                    id=JobId(str(len(jobs) + 1)),
                    user=UserName("u"),
                    submit=round(clock, 3),
                    workload=model,
                    samples=round(work / parts * rng.uniform(0.8, 1.2), 3),
                    reqs=reqs,
                    app=AppName(f"app{number}"),
                    phase=phase,
                )
            )
        clock += rng.expovariate(count / HOURS / 3600.0)
    return Workload(TABLES, tuple(jobs))


Shape = list[tuple[int, tuple[int, ...]]]
"""Phase and GPU counts of every job."""


def _search_shape(rng: random.Random) -> Shape:
    count = 1 if rng.random() < SINGLE else rng.randint(2, 12)
    return [(0, rng.choice([(1,), (1, 2)])) for _ in range(count)]


def _halving_shape(rng: random.Random) -> Shape:
    """n jobs of 1 or 2 GPUs, then half as many with twice the GPUs, down to one with up to 8."""
    count = 1 if rng.random() < SINGLE else rng.choice([4, 8, 16])
    shape: Shape = []
    phase = 1
    while True:
        max_gpus = min(8, 2 * 2 ** (phase - 1)) if count > 1 else 8
        reqs = tuple(2**i for i in range(max_gpus.bit_length()))
        shape += [(phase, reqs)] * count
        if count == 1:
            return shape
        count, phase = count // 2, phase + 1


def identical(count: int) -> Workload:
    """Identical apps of one network-bound job of 10 GPU hours on one GPU, all submitted at once."""
    jobs = [
        WorkloadJob(JobId(str(i)), UserName("u"), 0.0, NETWORK, 36000.0, tuple(range(1, 9)))
        for i in range(count)
    ]
    return Workload(TABLES, tuple(jobs))

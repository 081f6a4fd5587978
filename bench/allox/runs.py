"""Runs one policy over one workload and saves completion times and progress as JSON."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, pstdev

from bench.allox.workload import GPU, LONG_USER, USERS, Misestimating, cluster, workload
from hopsd.model.devices import CPU, is_cpu
from hopsd.model.plan import PlanSettings
from hopsd.model.scenario import Cluster, Workload
from hopsd.policies.allox.dominant_share import Configuration, value
from hopsd.policies.protocol import Policy
from hopsd.policies.registry import get
from hopsd.sim.cluster import ClusterSettings
from hopsd.sim.engine import SimulationSettings
from hopsd.sim.metrics import AllocationChange
from hopsd.sim.study import play

SAMPLE_SECONDS = 120.0
LOAD = 1.3


@dataclass(frozen=True, slots=True)
class Case:
    """One simulation. ``noise`` is the relative noise of each sample's time, ``overhead`` what
    sampling costs as a share of the job.

    ``load`` is the GPU seconds that arrive per second, divided by the number of GPUs.
    """

    policy: str
    alpha: float = 0.1
    noise: float = 0.04
    overhead: float = 0.03
    seed: int = 0
    load: float = LOAD

    @property
    def name(self) -> str:
        load = "" if self.load == LOAD else f"-{self.load:g}"
        return f"{self.policy}-{self.alpha:g}-{self.noise:g}-{self.overhead:g}-{self.seed}{load}"


@dataclass(frozen=True, slots=True)
class SavedRun:
    """Figures of one run, saved as JSON.

    ``spreads`` is the standard deviation of progress across users, every two minutes while jobs
    arrive, and ``spread`` its mean. ``long_ends`` are the end times of the long-job user's jobs.
    ``gpu_use`` and ``cpu_use`` are the utilization up to the last arrival, ``error`` the mean
    absolute error of the estimated run times.
    """

    jct: list[float]
    spread: float
    spreads: list[float]
    long_ends: list[float]
    gpu_use: float
    cpu_use: float
    error: float
    cpu_seconds: float

    @property
    def mean(self) -> float:
        return fmean(self.jct)

    @property
    def longest(self) -> float:
        """Mean completion time of the longest 1 % of the jobs."""
        return fmean(sorted(self.jct)[-max(1, len(self.jct) // 100) :])


def load_run(case: Case, folder: Path) -> SavedRun | None:
    path = folder / f"{case.name}.json"
    return SavedRun(**json.loads(path.read_text())) if path.exists() else None


def run(case: Case, folder: Path, jobs_per_user: int) -> SavedRun:
    """Simulate the case and save it. DRFF and SRPT take no samples: DRFF needs no run times, and
    SRPT is an oracle.
    """
    takes_samples = case.policy not in ("drff", "srpt")
    work = workload(case.seed, jobs_per_user, case.load, case.overhead if takes_samples else 0.0)
    policy: Policy = get(case.policy)
    error = 0.0
    if takes_samples:
        policy = Misestimating(policy, case.noise, case.seed)
        factors = [policy.factor(job.id, t) for job in work.jobs for t in (GPU, CPU)]
        error = fmean(abs(1 / factor - 1) for factor in factors)
    settings = SimulationSettings(
        3600.0, plan=PlanSettings(alpha=case.alpha), cluster=ClusterSettings(restart_seconds=0.0)
    )
    began = sum(os.times()[:2])
    result = play(case.policy, policy, cluster(), work, settings)
    seconds = sum(os.times()[:2]) - began
    ends = {o.id: o.end for o in result.outcomes if o.end is not None}
    spreads, uses = _over_time(result.changes, work, cluster())
    long_jobs = [job.id for job in work.jobs if job.user == LONG_USER]
    saved_run = SavedRun(
        jct=[o.jct for o in result.outcomes if o.jct is not None],
        spread=fmean(spreads),
        spreads=[round(s, 5) for s in spreads],
        long_ends=sorted(ends[job] for job in long_jobs if job in ends),
        gpu_use=uses[False],
        cpu_use=uses[True],
        error=error,
        cpu_seconds=round(seconds, 1),
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{case.name}.json").write_text(json.dumps(asdict(saved_run)))
    return saved_run


def _over_time(
    changes: tuple[AllocationChange, ...], work: Workload, cluster: Cluster
) -> tuple[list[float], dict[bool, float]]:
    """Spread of the users' progress, and utilization of GPUs and CPUs, at equal intervals."""
    types = {server.name: server.gpu_type for server in cluster.servers}
    capacity = {str(t): float(n) for t, n in cluster.gpus_by_type().items()}
    jobs = {job.id: job for job in work.jobs}
    last = work.jobs[-1].submit
    progress: dict[str, float] = defaultdict(float)
    worth: dict[str, float] = {}
    spreads: list[float] = []
    busy = {False: 0.0, True: 0.0}
    running: dict[str, tuple[float, bool]] = {}
    for change in changes:
        while len(spreads) * SAMPLE_SECONDS < min(change.time, last):
            spreads.append(pstdev([progress[f"user{i}"] for i in range(USERS)]))
        job = jobs[change.job]
        progress[job.user] -= worth.pop(job.id, 0.0)
        if job.id in running:
            start, on_cpu = running.pop(job.id)
            busy[on_cpu] += max(0.0, min(change.time, last) - start)
        if change.placement:
            gpu_type = types[change.placement.nodes[0]]
            ways = {
                str(t): Configuration({str(t): 1.0}, 1.0 / table.aggregated[1])
                for t, table in work.throughput[job.workload].items()
            }
            worth[job.id] = value(list(ways.values()), ways[gpu_type], capacity)
            progress[job.user] += worth[job.id]
            running[job.id] = (change.time, is_cpu(gpu_type))
    uses = {c: seconds / (last * capacity[CPU if c else GPU]) for c, seconds in busy.items()}
    return spreads, uses

"""The same jobs through Gavel's own simulator (stanford-futuredata/gavel) and through hops'.

As in the authors' simulator, a job is rigid, of a size that was measured (1, 2, 4 or 8 GPUs), a
restart costs nothing, and it does not matter which servers a job's GPUs are on: here, all GPUs of a
type are one server. Two things differ. Their round ends with the last of its jobs, and the next one
starts at once. And they keep shares of time for ``RESET_SECONDS``: a job that arrives meanwhile
gets no GPUs, not even idle ones. Ours computes the shares every round.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median_low

from bench.rivals import gavel_authors
from hopsd.errors import InputError
from hopsd.model.ids import GpuType, NodeName, WorkloadName
from hopsd.model.scenario import Cluster, Server, Workload
from hopsd.sim.measured import measured_workload, tables_of

POLICIES = {
    "gavel": "max_min_fairness_perf",
    "gavel-ftf": "finish_time_fairness_perf",
    "gavel-makespan": "min_total_duration_perf",
    "gavel-max-sum": "max_sum_throughput_perf",
}
"""Our policy names and the authors'."""

TYPES = {"v100": 3, "p100": 3, "k80": 2}
"""Parts of the cluster by type: 96, 96 and 64 of 256 GPUs."""

GPUS_PER_SERVER = 8
"""Servers as configured in the authors' simulator."""

RATE_PER_GPU = 60.0 / 256
"""Jobs per hour and GPU."""

RESET_SECONDS = 1920.0
"""Minimum seconds between two computations of shares in the authors' scheduler, as published."""


@dataclass(frozen=True, slots=True)
class Work:
    """``kinds`` and ``steps`` are each job's name in the authors' table, and its length."""

    cluster: Cluster
    workload: Workload
    kinds: Sequence[str]
    steps: Sequence[int]


def work(folder: Path, seed: int, jobs: int = 500, gpus: int = 256) -> Work:
    """Draw jobs with the speeds in the authors' folder.

    Raises:
        InputError: ``gpus`` cannot be divided into servers of the three types.
    """
    parts = GPUS_PER_SERVER * sum(TYPES.values())
    if gpus < parts or gpus % parts:
        raise InputError(f"{gpus} GPUs: give a multiple of {parts}")
    cluster = Cluster(
        tuple(
            Server(NodeName(name), GpuType(name), gpus * part // sum(TYPES.values()))
            for name, part in TYPES.items()
        )
    )
    document = (folder / "simulation_throughputs.json").read_text(encoding="utf-8")
    workload = measured_workload(document, cluster, seed, jobs, RATE_PER_GPU * gpus)
    _, batches = tables_of(document)
    steps = [max(1, round((job.samples or 0.0) / batches[job.workload])) for job in workload.jobs]
    rigid = tuple(
        replace(job, reqs=(measured_size(job.reqs),), samples=float(count * batches[job.workload]))
        for job, count in zip(workload.jobs, steps, strict=True)
    )
    kinds = [_kind(job.workload, batches) for job in rigid]
    return Work(cluster, _drop_unmeasured_types(replace(workload, jobs=rigid)), kinds, steps)


def _drop_unmeasured_types(workload: Workload) -> Workload:
    """Keep only types on which a job's size was measured; the others lack memory. All servers of a
    type get the same speed, as in the authors' simulator.

    Tables of fewer GPUs would otherwise imply a speed. Such jobs become workloads of their own.
    """
    tables, jobs = dict(workload.throughput), []
    for job in workload.jobs:
        type_tables = tables[job.workload]
        able = {t: table for t, table in type_tables.items() if job.reqs[0] in table.aggregated}
        name = job.workload
        if len(able) < len(type_tables):
            name = WorkloadName(f"{job.workload}-{job.reqs[0]}")
            tables[name] = able
        jobs.append(replace(job, workload=name))
    return replace(workload, throughput=tables, jobs=tuple(jobs), server_factor={})


def measured_size(counts: Sequence[int]) -> int:
    """The next measured size below the median count."""
    return max(size for size in (1, 2, 4, 8) if size <= median_low(counts))


def _kind(name: WorkloadName, batches: Mapping[WorkloadName, int]) -> str:
    """The authors' name: ``ResNet-50 (batch size 64)`` for ``ResNet-50-64``."""
    batch = batches[name]
    model = name.removesuffix(f"-{batch}").replace("_", " ")
    return f"{model} (batch size {batch})" if name.endswith(f"-{batch}") else model


def run_authors_simulator(
    folder: Path,
    python: str,
    policy: str,
    work: Work,
    round_seconds: float,
    solver: str,
    reset_seconds: float = RESET_SECONDS,
) -> list[float]:
    """Completion times in hours under the authors' scheduler, in order of arrival; NaN for jobs
    that it gave up.

    ``python`` is an interpreter with their requirements. With ``reset_seconds`` 0, shares are
    computed in each round, as ours are.

    Raises:
        InputError: their simulator failed.
    """
    task = {
        "policy": POLICIES[policy],
        "solver": solver,
        "round_seconds": round_seconds,
        "reset_seconds": reset_seconds,
        "gpus": {str(t): count for t, count in work.cluster.gpus_by_type().items()},
        "gpus_per_server": GPUS_PER_SERVER,
        "jobs": [
            [job.submit, kind, job.reqs[0], steps]
            for job, kind, steps in zip(work.workload.jobs, work.kinds, work.steps, strict=True)
        ],
    }
    process = subprocess.run(
        [python, gavel_authors.__file__, str(folder)],
        input=json.dumps(task),
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        last = process.stderr.strip().splitlines() or ["no message"]
        raise InputError(f"Gavel's simulator in {folder} failed: {last[-1]}")
    return [seconds / 3600.0 for seconds in json.loads(process.stdout.splitlines()[-1])]

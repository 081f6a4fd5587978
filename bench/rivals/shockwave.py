"""Shockwave's published traces, with the speeds that Gavel's authors measured.

A line of a trace has a model with its batch size, the steps to train, the GPU count and the time
of arrival; jobs keep the batch size that they begin with. Published with Shockwave
(uw-mad-dash/shockwave, NSDI 2023), whose ``scheduler`` folder is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hopsd.errors import InputError
from hopsd.model.ids import GpuType, JobId, NodeName, UserName, WorkloadName
from hopsd.model.job import ThroughputTable
from hopsd.model.scenario import Cluster, Server, Workload, WorkloadJob
from hopsd.sim.measured import APART

GPUS = {120: 32, 220: 64, 460: 128, 900: 256}
"""The authors' clusters, by the number of a trace's jobs."""

GPUS_PER_SERVER = 4
SIZES = (1, 2, 4, 8)

CLUSTERS: Mapping[str, tuple[str, ...]] = {"v100": ("v100",), "mixed": ("v100", "p100", "k80")}
"""The GPU types in turn: the authors' V100 alone, or as many servers of each of Gavel's."""


@dataclass(frozen=True, slots=True)
class _Line:
    model: str
    steps: float
    gpus: int
    arrival: float

    @property
    def batch(self) -> int:
        found = re.search(r"batch size (\d+)", self.model)
        return int(found[1]) if found else 1


def traces(folder: Path) -> dict[str, Path]:
    """The published traces by the first part of their names, such as ``120_0.2_5_100_40_25``."""
    found = sorted((folder / "traces" / "reproduce").glob("*.trace"))
    return {path.name.split(",")[0].rpartition("_")[0]: path for path in found}


def cluster(trace: Path, kind: str) -> Cluster:
    """As many GPUs as the authors have for the trace.

    Raises:
        InputError: a trace of another size.
    """
    jobs = len(_lines(trace))
    if jobs not in GPUS:
        known = ", ".join(map(str, GPUS))
        raise InputError(f"{trace}: {jobs} jobs; traces of {known} have a cluster")
    types = CLUSTERS[kind]
    names = sorted(types[i % len(types)] for i in range(GPUS[jobs] // GPUS_PER_SERVER))
    return Cluster(
        tuple(
            Server(NodeName(f"n{i:03d}"), GpuType(name), GPUS_PER_SERVER)
            for i, name in enumerate(names)
        )
    )


def workload(speeds: Path, trace: Path, kind: str, *, rigid: bool) -> Workload:
    """The jobs; elastic ones may have every GPU count that was measured.

    ``speeds``: Gavel's ``simulation_throughputs.json``.

    Raises:
        InputError: a model of the trace was not measured.
    """
    rates = json.loads(speeds.read_text(encoding="utf-8"))
    tables: dict[WorkloadName, dict[GpuType, ThroughputTable]] = {}
    jobs = []
    for number, line in enumerate(_lines(trace)):
        of = f"-{line.gpus}" if rigid else ""
        name = WorkloadName(re.sub(r"[^A-Za-z0-9]+", "-", line.model).strip("-") + of)
        if name not in tables:
            measured = {t: _table(rates, t, line) for t in CLUSTERS[kind]}
            tables[name] = {
                GpuType(t): table
                for t, table in measured.items()
                if (line.gpus in table.aggregated if rigid else table.aggregated)
            }
        sizes = sorted({size for one in tables[name].values() for size in one.aggregated})
        if not sizes:
            raise InputError(f"{speeds}: {line.model} was not measured on {line.gpus} GPUs")
        jobs.append(
            WorkloadJob(
                JobId(str(number)),
                UserName("u"),
                line.arrival,
                name,
                line.steps * line.batch,
                (line.gpus,) if rigid else tuple(sizes),
            )
        )
    return Workload(tables, tuple(jobs))


def _lines(trace: Path) -> list[_Line]:
    rows = [line.split("\t") for line in trace.read_text(encoding="utf-8").splitlines()]
    return [_Line(row[0], float(row[5]), int(row[6]), float(row[11])) for row in rows]


def _table(
    rates: Mapping[str, Mapping[str, Mapping[str, float]]], gpu_type: str, line: _Line
) -> ThroughputTable:
    def per_gpu(of: str, least: int) -> dict[int, float]:
        steps = {n: rates[of].get(f"('{line.model}', {n})", {}).get("null", 0.0) for n in SIZES}
        return {n: rate * line.batch / n for n, rate in steps.items() if n >= least and rate > 0.0}

    return ThroughputTable(per_gpu(gpu_type, 1), per_gpu(gpu_type + APART, 2), "measured")

"""Shockwave's published traces, with the speeds that Gavel's authors measured.

A line of a trace has a model with its batch size, the steps to train, the GPU count and the time
of arrival; jobs keep their initial batch size. The traces are those published with Shockwave
(uw-mad-dash/shockwave, NSDI 2023), and are read from its ``scheduler`` folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hopsd.errors import InputError
from hopsd.model.ids import GpuType, JobId, NodeName, UserName, WorkloadName
from hopsd.model.job import ThroughputTable
from hopsd.model.scenario import Cluster, Server, Workload, WorkloadJob
from hopsd.sim.measured import all_tables_of, parse_model

GPUS = {120: 32, 220: 64, 460: 128, 900: 256}
"""GPUs of the authors' clusters, by the number of a trace's jobs."""

GPUS_PER_SERVER = 4

CLUSTERS: Mapping[str, tuple[str, ...]] = {"v100": ("v100",), "mixed": ("v100", "p100", "k80")}
"""GPU types of the servers in turn: the authors' V100 alone, or each of Gavel's types equally."""


@dataclass(frozen=True, slots=True)
class _Line:
    model: str
    steps: float
    gpus: int
    arrival: float


def traces(folder: Path) -> dict[str, Path]:
    """The published traces by the first part of their names, such as ``120_0.2_5_100_40_25``."""
    paths = sorted((folder / "traces" / "reproduce").glob("*.trace"))
    return {path.name.split(",")[0].rpartition("_")[0]: path for path in paths}


def cluster(trace: Path, kind: str) -> Cluster:
    """A cluster with the authors' number of GPUs for the trace.

    Raises:
        InputError: the trace has another size.
    """
    jobs = len(_lines(trace))
    if jobs not in GPUS:
        sizes = ", ".join(map(str, GPUS))
        raise InputError(f"{trace}: {jobs} jobs; only traces of {sizes} have a cluster")
    types = CLUSTERS[kind]
    names = sorted(types[i % len(types)] for i in range(GPUS[jobs] // GPUS_PER_SERVER))
    return Cluster(
        tuple(
            Server(NodeName(f"n{i:03d}"), GpuType(name), GPUS_PER_SERVER)
            for i, name in enumerate(names)
        )
    )


def workload(speeds: Path, trace: Path, kind: str, *, rigid: bool) -> Workload:
    """The jobs of the trace; elastic ones accept every GPU count that was measured.

    ``speeds`` is Gavel's ``simulation_throughputs.json``.

    Raises:
        FormatError: ``speeds`` is not Gavel's table.
        InputError: a model of the trace was not measured.
    """
    tables_by_model, _ = all_tables_of(speeds.read_text(encoding="utf-8"))
    tables: dict[WorkloadName, dict[GpuType, ThroughputTable]] = {}
    jobs = []
    for number, line in enumerate(_lines(trace)):
        model, batch = parse_model(line.model)
        able = {
            t: table
            for t, table in tables_by_model.get(model, {}).items()
            if t in CLUSTERS[kind] and (not rigid or line.gpus in table.aggregated)
        }
        sizes = sorted({size for table in able.values() for size in table.aggregated})
        if not sizes:
            raise InputError(f"{speeds}: {line.model} was not measured on {line.gpus} GPUs")
        name = WorkloadName(f"{model}-on-{line.gpus}") if rigid else model
        tables[name] = able
        jobs.append(
            WorkloadJob(
                JobId(str(number)),
                UserName("u"),
                line.arrival,
                name,
                line.steps * batch,
                (line.gpus,) if rigid else tuple(sizes),
            )
        )
    return Workload(tables, tuple(jobs))


def _lines(trace: Path) -> list[_Line]:
    rows = [line.split("\t") for line in trace.read_text(encoding="utf-8").splitlines()]
    return [_Line(row[0], float(row[5]), int(row[6]), float(row[11])) for row in rows]

"""Reads measured speeds from the table of Gavel's simulator (``simulation_throughputs.json``).

It has steps per second of all GPUs together, by GPU type, model with batch size, and GPU count; in
types named ``..._unconsolidated`` every GPU is on a separate server. It is published with Gavel
(stanford-futuredata/gavel, MIT). Entries of two jobs that share a GPU are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hopsd.errors import FormatError
from hopsd.formats.item import Item, parse
from hopsd.model.ids import GpuType, WorkloadName
from hopsd.model.job import ThroughputTable
from hopsd.model.scenario import Cluster, Workload
from hopsd.sim.presets import MIX_512, Tables, TrainingKind, generate

APART_SUFFIX = "_unconsolidated"
JOBS, RATE_PER_HOUR = 200, 40.0
_KEY = re.compile(r"\('(?P<model>.+)', (?P<gpus>\d+)\)")
_MODEL = re.compile(r"(?P<name>.+?)(?: \(batch size (?P<batch>\d+)\))?")


def tables_of(document: str) -> tuple[Tables, dict[WorkloadName, int]]:
    """Like :func:`all_tables_of`, but only models measured on several GPUs, as others' scaling is
    unknown.

    Raises:
        FormatError: if ``document`` is not Gavel's table.
    """
    tables, batches = all_tables_of(document)
    scaling = {
        name: by_type
        for name, by_type in tables.items()
        if any(len(table.aggregated) > 1 for table in by_type.values())
    }
    return scaling, {name: batches[name] for name in scaling}


def all_tables_of(document: str) -> tuple[Tables, dict[WorkloadName, int]]:
    """Throughput tables and batch sizes by workload, such as ``ResNet-50-64``.

    For a model without a batch size, steps are counted instead of samples.

    Raises:
        FormatError: if ``document`` is not Gavel's table.
    """
    rates: dict[WorkloadName, dict[GpuType, dict[str, dict[int, float]]]] = {}
    batches: dict[WorkloadName, int] = {}
    for type_name, by_key in parse(document).entries():
        gpu_type = GpuType(type_name.removesuffix(APART_SUFFIX))
        kind = "apart" if type_name.endswith(APART_SUFFIX) else "together"
        for key, entry in by_key.entries():
            name, batch, gpus = _read_key(key, by_key)
            steps = _alone(entry)
            if steps > 0.0:
                batches[name] = batch
                table = rates.setdefault(name, {}).setdefault(gpu_type, {})
                table.setdefault(kind, {})[gpus] = steps * batch / gpus
    tables = {
        name: {t: _table(speeds) for t, speeds in by_type.items() if "together" in speeds}
        for name, by_type in rates.items()
    }
    return tables, batches


def measured_workload(
    document: str, cluster: Cluster, seed: int, jobs: int | None, rate_per_hour: float | None
) -> Workload:
    """Generate jobs like the paper's, of models whose speeds were measured.

    Raises:
        FormatError: if ``document`` is not Gavel's table, or lacks a GPU type of the cluster.
    """
    tables, batches = tables_of(document)
    types = set(cluster.gpus_by_type())
    gpu_types = {t for by_type in tables.values() for t in by_type}
    if not types <= gpu_types:
        raise FormatError(
            f"GPU type {min(types - gpu_types)!r} was not measured; choose from"
            f" {', '.join(sorted(gpu_types))}"
        )
    usable = {name: by_type for name, by_type in tables.items() if types <= by_type.keys()}
    kinds = [TrainingKind(n, category, batches[n]) for category in MIX_512 for n in sorted(usable)]
    rate = (rate_per_hour or RATE_PER_HOUR) / 3600.0
    return generate(cluster, usable, kinds, MIX_512, jobs or JOBS, rate, seed)


def _read_key(key: str, item: Item) -> tuple[WorkloadName, int, int]:
    match = _KEY.fullmatch(key)
    if match is None:
        raise FormatError(f"{item.path}: {key!r} is no key such as \"('LM (batch size 5)', 2)\"")
    return *parse_model(match["model"]), int(match["gpus"])


def parse_model(model: str) -> tuple[WorkloadName, int]:
    """Split a model's name in Gavel, ``LM (batch size 5)``, into workload and batch size."""
    match = _MODEL.fullmatch(model)
    if match is None:
        raise FormatError(f"{model!r} names no model")
    batch = int(match["batch"] or 1)
    name = match["name"].replace(" ", "_") + (f"-{batch}" if match["batch"] else "")
    return WorkloadName(name), batch


def _alone(entry: Item) -> float:
    for partner, steps in entry.entries():
        if partner == "null":
            return steps.number(minimum=0.0)
    raise FormatError(f"{entry.path}.null: missing")


def _table(speeds: Mapping[str, Mapping[int, float]]) -> ThroughputTable:
    distributed_rates = {n: rate for n, rate in speeds.get("apart", {}).items() if n > 1}
    return ThroughputTable(dict(sorted(speeds["together"].items())), distributed_rates, "measured")

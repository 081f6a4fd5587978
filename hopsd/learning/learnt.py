"""What hopsd knows about workloads' speeds, as shown by `hopsctl throughput`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from hopsd.core.speed.estimator import Estimator, EstimatorSettings, SpeedTables
from hopsd.core.speed.inferred import with_implied_bandwidths
from hopsd.core.speed.layers import Layers, MeasuredSpeed, Table, Tables, by_workload
from hopsd.core.speed.throughput import per_gpu
from hopsd.core.speed.type_speeds import with_type_speeds
from hopsd.errors import InputError
from hopsd.model.ids import GpuType, NodeName, WorkloadName
from hopsd.model.job import Node, ThroughputTable
from hopsd.model.knowledge import Knowledge

Document = dict[str, Any]


def known_workloads(knowledge: Knowledge) -> list[Document]:
    """Return one row per workload: where it was measured, how often, and when last."""
    names = {
        *knowledge.tables,
        *(record.workload for record in knowledge.records),
        *(fit.workload for fit in knowledge.theory),
    }
    return [_row(name, knowledge) for name in sorted(names)]


def _row(name: WorkloadName, knowledge: Knowledge) -> Document:
    records = [record for record in knowledge.records if record.workload == name]
    fits = [fit for fit in knowledge.theory if fit.workload == name]
    return {
        "workload": name,
        "final": name in knowledge.tables,
        "measured": sorted({record.gpu_type for record in records}),
        "records": len(records),
        "theory": sorted(fit.gpu_type for fit in fits),
        "newest": max([record.at for record in records] + [fit.at for fit in fits], default=None),
    }


def workload_document(
    name: WorkloadName,
    knowledge: Knowledge,
    nodes: Sequence[Node],
    settings: EstimatorSettings,
    now: float,
) -> Document:
    """Return the tables of all layers of one workload, and the resulting estimate.

    ``name`` is the workload's full name, or a unique prefix of it.

    Raises:
        InputError: no known workload or several match; the message names them.
    """
    name = _unique_match([row["workload"] for row in known_workloads(knowledge)], name)
    knowledge = with_implied_bandwidths(knowledge, settings, now)
    knowledge = with_type_speeds(knowledge, settings)
    answer = Estimator(nodes, knowledge, settings, now).estimate(name)
    theory_answer = Estimator(nodes, replace(knowledge, records=()), settings, now).estimate(name)
    layers = by_workload(knowledge.records, settings.half_life_seconds, now).get(name)
    layers = layers or Layers({}, {}, {})
    bandwidth = {b.gpu_type: asdict(b) for b in (*knowledge.bandwidth, *settings.bandwidth)}
    theory = {fit.gpu_type: asdict(fit) for fit in knowledge.theory if fit.workload == name}
    return {
        "workload": name,
        "final": name in knowledge.tables,
        "min_records": settings.min_records,
        "types": [
            {
                "gpu_type": gpu_type,
                "shapes": _shapes(gpu_type, table, theory_answer.tables[gpu_type], layers),
                "theory": theory.get(gpu_type),
                "bandwidth": bandwidth.get(gpu_type),
            }
            for gpu_type, table in answer.tables.items()
        ],
        "servers": _servers(answer, layers),
    }


def _unique_match(names: Sequence[WorkloadName], prefix: WorkloadName) -> WorkloadName:
    matches = [name for name in names if name.startswith(prefix)]
    if prefix in names or len(matches) == 1:
        return prefix if prefix in names else matches[0]
    if matches:
        raise InputError(f"workload {prefix!r} matches {len(matches)}: {', '.join(matches[:5])}")
    close = difflib.get_close_matches(prefix, names, n=3) or names[:3]
    hint = f"did you mean {' or '.join(close)}?" if close else "no workload is known yet"
    raise InputError(f"workload {prefix!r} is not known; {hint}")


def _shapes(
    gpu_type: GpuType, table: ThroughputTable, theory_table: ThroughputTable, layers: Layers
) -> list[Document]:
    type_tables = layers.type.get(gpu_type, Tables())
    by_node = {node: layers.entity[node] for node, kind in layers.types.items() if kind == gpu_type}
    aggregated_rows = [
        _shape("gpus", n, rate, table.source_of(n, 1), type_tables.aggregated.get(n))
        | {
            "theory": _theory(theory_table.aggregated.get(n), theory_table.source_of(n, 1)),
            "entity": _entity({node: tables.aggregated for node, tables in by_node.items()}, n),
        }
        for n, rate in table.aggregated.items()
    ]
    if table.by_shape is None:
        return aggregated_rows + _spread_by_count(table, theory_table, type_tables, by_node)
    spread = []
    for gpus, nodes in sorted({(2, 2), *type_tables.spread}, key=lambda s: (s[1], s[0])):
        low, high = table.by_shape.interval(gpus, nodes)
        theory = per_gpu(theory_table, gpus, nodes)
        spread.append(
            _shape(
                "servers",
                nodes,
                per_gpu(table, gpus, nodes),
                table.source_of(gpus, nodes),
                type_tables.spread.get((gpus, nodes)),
            )
            | {
                "gpus": gpus,
                "between": [low, high],
                "theory": _theory(theory, theory_table.source_of(gpus, nodes)),
                "entity": {
                    node: _speed_document(tables.spread[gpus, nodes])
                    for node, tables in sorted(by_node.items())
                    if (gpus, nodes) in tables.spread
                },
            }
        )
    for row in aggregated_rows:
        row["between"] = list(table.by_shape.interval(row["count"], 1))
    return aggregated_rows + spread


def _spread_by_count(
    table: ThroughputTable,
    theory_table: ThroughputTable,
    type_tables: Tables,
    by_node: Mapping[NodeName, Tables],
) -> list[Document]:
    """The rows of the paper's table for distributed jobs, or of the operator's table."""
    return [
        _shape("servers", n, rate, table.source_of(n, n), type_tables.distributed.get(n))
        | {
            "theory": _theory(theory_table.distributed.get(n), theory_table.source_of(n, n)),
            "entity": _entity({node: tables.distributed for node, tables in by_node.items()}, n),
        }
        for n, rate in table.distributed.items()
    ]


def _shape(
    kind: str, count: int, rate: float, source: str, speed: MeasuredSpeed | None
) -> Document:
    return {
        "kind": kind,
        "count": count,
        "per_gpu": rate,
        "source": source,
        "type": _speed_document(speed) if speed else None,
    }


def _theory(rate: float | None, source: str) -> float | None:
    """The rate if it comes from equations 1 to 5, not from assumptions or operators' tables."""
    return rate if source.startswith("theory") else None


def _entity(tables: Mapping[Any, Table], count: int) -> Document:
    return {
        node: _speed_document(table[count])
        for node, table in sorted(tables.items())
        if count in table
    }


def _speed_document(speed: MeasuredSpeed) -> Document:
    return {
        "per_gpu": speed.per_gpu,
        "records": speed.records,
        "newest": speed.newest,
    }


def _servers(answer: SpeedTables, layers: Layers) -> list[Document]:
    return [
        {
            "node": node,
            "gpu_type": gpu_type,
            "factor": answer.server_factor.get(node),
            "records": sum(
                speed.records
                for table in (layers.entity[node].aggregated, layers.entity[node].distributed)
                for speed in table.values()
            ),
        }
        for node, gpu_type in sorted(layers.types.items())
    ]

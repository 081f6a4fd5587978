"""Records that a site keeps of its trainings and nodes: `hopsctl health --records`."""

from __future__ import annotations

import math
from typing import Any

from hopsd.errors import FormatError
from hopsd.formats.item import Item, parse, unique
from hopsd.health.records import (
    EndState,
    Health,
    HealthNode,
    HealthRecords,
    JobEnd,
    RankTime,
    SpeedRecord,
)
from hopsd.model.bounds import EPOCH, GPUS
from hopsd.model.ids import GpuType, JobId, NodeName, WorkloadName

MIN_SECONDS, MAX_SECONDS = 1e-9, 1e9
"""Bounds of the time of an iteration."""

_RECORD = {"at", "workload", "job", "nodes", "seconds_per_iteration"}


def read_health(document: str) -> HealthRecords:
    """Read a file of records.

    Raises:
        FormatError: the message starts with the path of what is wrong.
    """
    top = parse(document).fields("now nodes records ends")
    now = _time(top["now"])
    items = top["nodes"].items()
    nodes = [_node(item) for item in items]
    if not nodes:
        top["nodes"].refuse("a list of one node or more")
    unique([(node.name, item) for node, item in zip(nodes, items, strict=True)], "node")
    gpus = {node.name: node.gpus for node in nodes}
    return HealthRecords(
        now,
        tuple(nodes),
        tuple(_record(item, gpus) for item in top["records"].items()),
        tuple(_end(item, gpus) for item in top["ends"].items()),
    )


def _time(item: Item) -> float:
    return item.number(minimum=EPOCH.minimum, maximum=EPOCH.maximum)


def _node(item: Item) -> HealthNode:
    fields = item.fields("name gpu_type gpus")
    gpus = fields["gpus"].whole(minimum=1)
    if gpus > GPUS.maximum:
        fields["gpus"].refuse(f"at most {GPUS.maximum:g}")
    return HealthNode(NodeName(fields["name"].text()), GpuType(fields["gpu_type"].text()), gpus)


def _record(item: Item, gpus: dict[NodeName, int]) -> SpeedRecord:
    if (quick := _plain_record(item.value, gpus)) is not None:
        return quick
    fields = item.fields("at workload job nodes seconds_per_iteration", "ranks gpu")
    nodes = _nodes(fields["nodes"], gpus)
    return SpeedRecord(
        at=_time(fields["at"]),
        workload=WorkloadName(fields["workload"].text()),
        job=JobId(fields["job"].text()),
        nodes=nodes,
        seconds_per_iteration=fields["seconds_per_iteration"].number(
            minimum=MIN_SECONDS, maximum=MAX_SECONDS
        ),
        ranks=fields.get("ranks", lambda ranks: _ranks(ranks, nodes), ()),
        gpu=fields.get("gpu", lambda gpu: _gpu(gpu, nodes), None),
    )


def _gpu(item: Item, nodes: dict[NodeName, int]) -> int:
    if sum(nodes.values()) != 1:
        item.refuse("left out unless the job has a single GPU")
    return item.whole(minimum=0)


def _plain_record(value: Any, gpus: dict[NodeName, int]) -> SpeedRecord | None:
    """Read a valid record without ranks fast, as there may be millions; None for any other."""
    if not isinstance(value, dict) or value.keys() != _RECORD:
        return None
    time, nodes, seconds = value["at"], value["nodes"], value["seconds_per_iteration"]
    workload, job = value["workload"], value["job"]
    if (
        type(time) in (int, float)
        and EPOCH.holds(time)
        and type(seconds) in (int, float)
        and MIN_SECONDS <= seconds <= MAX_SECONDS
        and type(workload) is type(job) is str
        and workload.isascii()
        and job.isascii()
        and workload
        and job
        and type(nodes) is dict
        and nodes
        and all(type(n) is int and 1 <= n <= gpus.get(name, 0) for name, n in nodes.items())
    ):
        return SpeedRecord(float(time), WorkloadName(workload), JobId(job), nodes, float(seconds))
    return None


def _nodes(item: Item, gpus: dict[NodeName, int]) -> dict[NodeName, int]:
    """Read the GPUs used on each node: at least one node, none with more GPUs than it has."""
    gpus_by_node: dict[NodeName, int] = {}
    for key, value in item.entries():
        name = NodeName(key)
        if name not in gpus:
            raise FormatError(f"{value.path}: there is no node {key!r} in nodes")
        count = value.whole(minimum=1)
        if count > gpus[name]:
            value.refuse(f"at most the node's {gpus[name]} GPUs")
        gpus_by_node[name] = count
    if not gpus_by_node:
        item.refuse("an object of one node or more")
    return gpus_by_node


def _ranks(item: Item, nodes: dict[NodeName, int]) -> tuple[RankTime, ...]:
    ranks = []
    for rank in item.items():
        fields = rank.fields("node compute wait")
        node = NodeName(fields["node"].text())
        if node not in nodes:
            raise FormatError(f"{rank.path}.node: there is no node {node!r} in the record's nodes")
        ranks.append(
            RankTime(
                node,
                fields["compute"].number(minimum=0, maximum=MAX_SECONDS),
                fields["wait"].number(minimum=0, maximum=MAX_SECONDS),
            )
        )
    return tuple(ranks)


def _end(item: Item, gpus: dict[NodeName, int]) -> JobEnd:
    fields = item.fields("at job workload nodes state")
    return JobEnd(
        at=_time(fields["at"]),
        job=JobId(fields["job"].text()),
        workload=WorkloadName(fields["workload"].text()),
        nodes=_nodes(fields["nodes"], gpus),
        state=fields["state"].choice(EndState),
    )


def health_json(health: Health) -> dict[str, Any]:
    """Render ``health`` as `hopsctl health --json` prints it."""
    return {
        "slow": [
            {
                "node": slow.node,
                "factor": round(slow.factor, 5),
                "low": round(slow.low, 5),
                "high": round(slow.high, 5),
                "since": slow.since,
                **({} if slow.gpu is None else {"gpu": slow.gpu}),
            }
            for slow in health.slow
        ],
        "lemons": [
            {
                "node": lemon.node,
                "failures": lemon.failures,
                "expected": round(lemon.expected, 4),
                "p": _significant(lemon.p),
            }
            for lemon in health.lemons
        ],
        "shared": [
            {"node": node.node, "factor": round(node.factor, 5), "since": node.since}
            for node in health.shared_nodes
        ],
    }


def _significant(value: float) -> float:
    """Round to three significant digits."""
    return value if value == 0.0 else round(value, 2 - math.floor(math.log10(value)))

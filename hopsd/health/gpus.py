"""Find which GPU of a node is slow, from the runs of jobs with a single GPU.

Each GPU is judged like a node with one GPU (`slow.py`), except that sudden changes are ignored: a
new neighbour may slow a run down. For the same reason a GPU is named only if it is also slower than
other GPUs of its node: what they have in common is the node's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from hopsd.health.measurements import (
    Past,
    join_blocks,
    node_types,
    read_columns,
    read_past,
)
from hopsd.health.model import Estimate
from hopsd.health.records import HealthNode, HealthRecords, SlowNode, SpeedRecord
from hopsd.health.slow import MARGIN, fit_course, slow_node
from hopsd.model.ids import NodeName, WorkloadName

ALARM = 4.5
"""Standard errors beyond MARGIN at which a GPU is slower than the others of its node."""

GPUS_AT_ONCE = 64
"""The number of nodes whose GPUs are judged at a time: a fit's time is cubic in their number."""


def find_slow_gpus(records: HealthRecords, past: Past | None = None) -> tuple[SlowNode, ...]:
    """Return the GPUs that are slow at ``records.now``, the slowest first. ``past`` is that of the
    records, if the caller has it.
    """
    if all(record.gpu is None for record in records.records):
        return ()
    singles: dict[tuple[int, int], list[SpeedRecord]] = defaultdict(list)
    index = {node.name: number for number, node in enumerate(records.nodes)}
    for record in _singles(past or read_past(records)):
        (node,) = record.nodes
        singles[index[node], record.gpu or 0].append(record)
    slow: list[SlowNode] = []
    for _, members in groupby(sorted(singles), key=lambda gpu: gpu[0] // GPUS_AT_ONCE):
        gpus = list(members)
        slow += _judge(records, gpus, [record for gpu in gpus for record in singles[gpu]])
    return tuple(sorted(slow, key=lambda gpu: (gpu.factor, gpu.node, gpu.gpu)))


def _singles(past: Past) -> Iterator[SpeedRecord]:
    """Yield the reports of single GPUs; beside other jobs a workload counts as a different one."""
    for record, neighbours in zip(past.records, past.neighbours, strict=True):
        if record.gpu is not None:
            name = f"{record.workload}{' beside others' * (neighbours > 0)}"
            yield replace(record, workload=WorkloadName(name))


def _judge(
    records: HealthRecords, gpus: Sequence[tuple[int, int]], gpu_records: Sequence[SpeedRecord]
) -> Iterator[SlowNode]:
    """Yield those of ``gpus``, given by the indices of node and GPU, that are slow."""
    nodes = tuple(
        HealthNode(_name(records.nodes[node].name, gpu), records.nodes[node].gpu_type, 1)
        for node, gpu in gpus
    )
    speed_records = tuple(
        replace(record, nodes={_name(name, record.gpu or 0): 1})
        for record in gpu_records
        for name in record.nodes
    )
    alone = HealthRecords(records.now, nodes, speed_records)
    units = join_blocks(read_columns(alone).steady(), records.now)
    if not len(units):
        return
    course = fit_course(units, node_types(nodes))
    for number, (node, gpu) in enumerate(gpus):
        verdict = course.judge(number, records.now)
        if verdict is None:
            continue
        estimate, begin = verdict
        siblings = [
            i for i, (other_node, _) in enumerate(gpus) if other_node == node and i != number
        ]
        sibling_estimate = [
            other_node for i in siblings if (other_node := course.estimate(i)) is not None
        ]
        if _slower_than(sibling_estimate, estimate):
            name = records.nodes[node].name
            yield replace(slow_node(name, estimate.slowness, estimate.error, begin), gpu=gpu)


def _slower_than(sibling_estimates: Sequence[Estimate], estimate: Estimate) -> bool:
    """Whether a GPU is slower than the other GPUs of its node."""
    if not sibling_estimates:
        return False
    weights = np.array([sibling.error**-2 for sibling in sibling_estimates])
    common = float(np.median([sibling.slowness for sibling in sibling_estimates]))
    error = float(np.sqrt(estimate.error**2 + np.pi / 2.0 / weights.sum()))
    return estimate.slowness - common - MARGIN > ALARM * error


def _name(node: NodeName, gpu: int) -> NodeName:
    return NodeName(f"{node} {gpu}")

"""Plausibility bounds on a speed relative to other speeds of the same workload.

Jobs measure themselves, so a job could claim that its training runs 10^9 times as fast on 8 GPUs as
on one, and would outweigh all others in a plan. The bounds are based on

- Gavel's measurements (26 job types on K80, P100 and V100; 1, 2, 4 and 8 GPUs in a server and
  spread; stanford-futuredata/gavel, ``simulation_throughputs.json``),
- Pollux's (six applications on servers with four T4; petuum/adaptdl, branch osdi21-artifact),
- for CPUs AlloX (EuroSys 2020): a GPU is 1.8 to 10 times as fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf

from hopsd.core.speed.layered import ClampedSpeeds
from hopsd.model import bounds
from hopsd.model.bounds import ValueRange
from hopsd.model.devices import is_cpu
from hopsd.model.ids import GpuType, NodeName
from hopsd.model.job import ByShape, ThroughputTable

MARGIN = 2.0

MIN_TOGETHER = 0.184
"""Minimum speed per GPU of several GPUs in one server, relative to one GPU alone: a language model
with batch 5 on 8 P100. 330 measurements."""

MIN_SPREAD = 0.084
"""Minimum speed per GPU over several servers, relative to one GPU alone: a language model with
batch 5 on 8 V100. 5,488 measurements."""

MAX_PER_GPU = 1.1
"""Maximum speed per GPU of several GPUs, relative to one GPU alone. There is no margin, as faked
speeds above it gain what others lose (docs/lies.md); a training that is even faster is planned as
one of linear speed. Of Gavel's 333 measurements of several GPUs, seven are above it, all of
ResNet-18 on V100 (1.13 to 1.57)."""

MEASURED_TYPES = 11.63
"""Speed of one GPU of the fastest type relative to one of the slowest: ResNet-18 with batch 256,
V100 over K80. 26 measurements."""

MEASURED_OVER_CPU = 10.0


ONE_SERVER = ValueRange(MIN_TOGETHER / MARGIN, MAX_PER_GPU)
SPREAD = ValueRange(MIN_SPREAD / MARGIN, MAX_PER_GPU)
TYPES = MEASURED_TYPES * MARGIN
OVER_CPU = TYPES * MEASURED_OVER_CPU * MARGIN
SERVERS = ValueRange(0.1, 10.0)
"""Speed of one server relative to its type; no broad measurements have been published."""


def plausible_tables(
    tables: Mapping[GpuType, ThroughputTable],
) -> Mapping[GpuType, ThroughputTable]:
    """Clamp the ``tables`` of a workload to plausible speeds.

    The bounds follow from the workload's slowest type and, on each type, from one GPU alone. Tables
    within the bounds are returned unchanged.
    """
    alone = {gpu_type: table.aggregated[1] for gpu_type, table in tables.items()}
    slowest_gpu = min((s for t, s in alone.items() if not is_cpu(t)), default=None)
    slowest = min(alone.values(), default=1.0)
    result = {}
    for gpu_type, table in tables.items():
        limit = alone[gpu_type]
        if slowest_gpu is not None and not is_cpu(gpu_type):
            limit = min(limit, TYPES * slowest_gpu)
        result[gpu_type] = _table(table, min(limit, OVER_CPU * slowest))
    return result


def plausible_factors(factors: Mapping[NodeName, float]) -> Mapping[NodeName, float]:
    """Clamp server factors to plausible ones."""
    return {node: _clamp(factor, 1.0, SERVERS) for node, factor in factors.items()}


def _table(table: ThroughputTable, alone: float) -> ThroughputTable:
    """Clamp a table. ``alone``: the plausible speed of one GPU, which scales all others."""
    scale = alone / table.aggregated[1]
    aggregated_speeds = {n: scale * rate for n, rate in table.aggregated.items()}
    spread = {n: scale * rate for n, rate in table.distributed.items()}
    clamped_speeds = {n: _clamp(rate, alone, ONE_SERVER) for n, rate in aggregated_speeds.items()}
    clamped_spread = {n: _clamp(rate, alone, SPREAD) for n, rate in spread.items()}
    if table.by_shape is not None:
        return _by_shape(table, table.by_shape, scale, alone)
    if scale == 1.0 and clamped_speeds == aggregated_speeds and clamped_spread == spread:
        return table
    return replace(
        table,
        aggregated=clamped_speeds,
        distributed=clamped_spread,
        aggregated_source=_clamped_sources(
            table.aggregated_source, table.aggregated, clamped_speeds
        ),
        distributed_source=_clamped_sources(
            table.distributed_source, table.distributed, clamped_spread
        ),
    )


def _by_shape(
    table: ThroughputTable, speeds: ByShape, scale: float, alone: float
) -> ThroughputTable:
    """Clamp every shape of the estimates and tables to the bounds."""
    clamped_model = ClampedSpeeds(
        speeds, scale, *(_bounds(alone, bound) for bound in (ONE_SERVER, SPREAD))
    )
    aggregated_speeds = {
        n: clamped_model.clamp(scale * rate, 1) for n, rate in table.aggregated.items()
    }
    spread = {n: clamped_model.clamp(scale * rate, 2) for n, rate in table.distributed.items()}
    return replace(
        table,
        aggregated=aggregated_speeds,
        distributed=spread,
        aggregated_source=_clamped_sources(
            table.aggregated_source, table.aggregated, aggregated_speeds
        ),
        distributed_source=_clamped_sources(table.distributed_source, table.distributed, spread),
        by_shape=clamped_model,
    )


def _bounds(alone: float, bound: ValueRange) -> ValueRange:
    return ValueRange(_clamp(0.0, alone, bound), _clamp(inf, alone, bound))


def _clamp(rate: float, alone: float, bound: ValueRange) -> float:
    clamped_rate = min(max(rate, bound.minimum * alone), bound.maximum * alone)
    return min(max(clamped_rate, bounds.SPEED.minimum), bounds.SPEED.maximum)


def _clamped_sources(
    sources: Mapping[int, str], raw: Mapping[int, float], clamped_speeds: Mapping[int, float]
) -> dict[int, str]:
    return {
        n: source if clamped_speeds[n] == raw[n] else f"{source}, limited to plausible values"
        for n, source in sources.items()
    }

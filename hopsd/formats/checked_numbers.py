"""Checks the numbers of snapshots and workloads that a program built, rather than a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hopsd.errors import InputError
from hopsd.model import bounds
from hopsd.model.bounds import ValueRange
from hopsd.model.ids import GpuType
from hopsd.model.job import Job, ThroughputTable
from hopsd.model.plan import Snapshot
from hopsd.model.scenario import Workload

_Checks = Iterable[tuple[str, float | None, ValueRange]]
_SECONDS = bounds.DURATION
_SAMPLES_DONE = ValueRange(0, bounds.SAMPLES.maximum)
_NODE_GPUS = ValueRange(0, bounds.GPUS.maximum)
_FACTOR = ValueRange(0, 1)


def check_snapshot(snapshot: Snapshot) -> None:
    """Refuse numbers with which a plan would overflow, underflow or divide by zero.

    Raises:
        InputError: the message names the number and the accepted range.
    """
    _check("", [("now", snapshot.now, bounds.MOMENT)])
    _check("", [("round.seconds", snapshot.round.seconds, bounds.RUN_SECONDS)])
    for node in snapshot.nodes:
        _check(f"node {node.name}: ", [("gpus", node.gpus, _NODE_GPUS)])
    for job in snapshot.jobs:
        _check(f"job {job.id}: ", _numbers_of(job))


def check_workload(workload: Workload) -> None:
    """As :func:`check_snapshot`, for the jobs and speeds of a simulation."""
    for name, tables in workload.throughput.items():
        _check(f"workload {name}: ", _rates(tables))
    for name, factors in workload.server_factor.items():
        _check(f"workload {name}: ", _check_each("server_factor", factors, bounds.RATE))
    for job in workload.jobs:
        _check(
            f"job {job.id}: ",
            [
                ("submit", job.submit, bounds.MOMENT),
                ("samples", job.samples, bounds.SAMPLES),
                ("batch_size", job.batch_size, bounds.BATCH),
                ("time_limit_seconds", job.time_limit_seconds, bounds.RUN_SECONDS),
                ("restart_seconds", job.restart_seconds, bounds.DURATION),
                *_check_each("reqs", dict(enumerate(job.reqs)), bounds.GPUS),
            ],
        )


def _numbers_of(job: Job) -> Iterator[tuple[str, float | None, ValueRange]]:
    yield "submit", job.submit, bounds.MOMENT
    yield "running_since", job.running_since, bounds.MOMENT
    yield "waiting_since", job.waiting_since, bounds.MOMENT
    yield "wait_seconds", job.wait_seconds, _SECONDS
    yield "run_seconds", job.run_seconds, _SECONDS
    yield "restart_seconds", job.restart_seconds, _SECONDS
    yield "age_seconds", job.age_seconds, bounds.RUN_SECONDS
    yield "time_limit_seconds", job.time_limit_seconds, bounds.RUN_SECONDS
    yield "samples", job.samples, bounds.SAMPLES
    yield "samples_done", job.samples_done, _SAMPLES_DONE
    yield "priority", job.priority, bounds.PRIORITY
    yield "sensitivity", job.sensitivity, bounds.RATE
    yield "share", job.share, _FACTOR
    yield "qos_weight", job.qos_weight, _FACTOR
    yield from _check_each("reqs", dict(enumerate(job.reqs)), bounds.GPUS)
    yield from _check_each("server_factor", job.server_factor, bounds.RATE)
    yield from _check_each("across", job.across, bounds.RATE)
    yield from _rates(job.throughput)


def _rates(tables: Mapping[GpuType, ThroughputTable]) -> Iterator[tuple[str, float, ValueRange]]:
    for gpu_type, table in tables.items():
        for name, rates in (("aggregated", table.aggregated), ("distributed", table.distributed)):
            yield from _check_each(f"throughput.{gpu_type}.{name}", rates, bounds.RATE)


def _check_each(
    name: str, values: Mapping[Any, float], bound: ValueRange
) -> Iterator[tuple[str, float, ValueRange]]:
    for key, value in values.items():
        yield f"{name}.{key}", value, bound


def _check(label: str, numbers: _Checks) -> None:
    for name, value, bound in numbers:
        if value is not None and not bound.holds(value):
            raise InputError(f"{label}{name}: {value!r}; give {bound}")

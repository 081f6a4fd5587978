"""Configurations: every placement that a job could get (section 3.6 of the paper).

A placement ``{server: gpus}`` is a *shape*; many jobs can take the same one. A *column* is one
job with one shape. Columns live in flat arrays, sorted by job, so that a million of them cost
megabytes and milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hopsd.core.placement.factors import Factors
from hopsd.core.placement.shapes import Shapes, ShapesOfSize, by_size, join
from hopsd.core.speed.throughput import configuration_throughput, interpolate
from hopsd.model.arrays import Floats, Ints
from hopsd.model.cluster import Node
from hopsd.model.ids import GpuType
from hopsd.model.job import Job


@dataclass(frozen=True, slots=True)
class Configurations:
    """Columns of job ``i`` are ``start[i]:start[i + 1]``; ``shape`` indexes ``shapes``.

    ``throughput``: samples per second of the whole job. ``present[i]``: the column that is
    where the job runs now, -1 for none. ``pool`` (servers,): the GPU type of each as a number;
    ``speed`` (servers,): its server factor, mean over the jobs.
    """

    start: Ints
    shape: npt.NDArray[np.int32]
    throughput: Floats
    present: Ints
    shapes: Shapes
    pool: Ints
    speed: Floats

    @property
    def jobs(self) -> int:
        return len(self.start) - 1

    def __len__(self) -> int:
        return len(self.shape)

    def job_of_column(self) -> npt.NDArray[np.int32]:
        """The job of every column, (columns,)."""
        return np.repeat(np.arange(self.jobs, dtype=np.int32), np.diff(self.start))


def generate(
    jobs: Sequence[Job],
    nodes: Sequence[Node],
    idle: Ints,
    sensitivity: Sequence[float | None],
    *,
    sigma: float,
    keep_present: bool,
) -> Configurations:
    """All configurations of ``jobs`` over the ``idle`` GPUs of each node, (nodes,).

    A sensitive job (``sensitivity > sigma``) is spread only on types whose largest server is
    smaller than its smallest requirement; a job without a sensitivity never.
    ``keep_present``: where a running job is now is one of its configurations.
    """
    blocks: dict[_Key, _Block] = {}
    pool = np.zeros(len(nodes), dtype=np.int64)
    for number, gpu_type in enumerate(dict.fromkeys(node.gpu_type for node in nodes)):
        servers = np.array([i for i, node in enumerate(nodes) if node.gpu_type == gpu_type])
        pool[servers] = number
        largest = max(nodes[i].gpus for i in servers)
        spreaders = _may_spread(jobs, gpu_type, largest, sensitivity, sigma)
        blocks |= _blocks_of_type(jobs, gpu_type, servers, idle[servers], spreaders)
    factors = Factors(jobs, nodes)
    presents = _presents(jobs, nodes, idle) if keep_present else []
    return _fill(len(jobs), blocks, factors, presents, pool)


_Key = tuple[GpuType, int, int]


@dataclass(frozen=True, slots=True)
class _Block:
    """Jobs and shapes of one GPU type, one size and one server count: every pair is a column.

    ``per_gpu`` (jobs,): samples per second per GPU before server factors.
    """

    jobs: Ints
    per_gpu: Floats
    shapes: ShapesOfSize


def _may_spread(
    jobs: Sequence[Job],
    gpu_type: GpuType,
    largest: int,
    sensitivity: Sequence[float | None],
    sigma: float,
) -> frozenset[int]:
    spreaders = set()
    for i, (job, rho) in enumerate(zip(jobs, sensitivity, strict=True)):
        table = job.throughput.get(gpu_type)
        if table is None or not table.distributed or rho is None:
            continue
        if rho <= sigma or min(job.reqs) > largest:
            spreaders.add(i)
    return frozenset(spreaders)


def _blocks_of_type(
    jobs: Sequence[Job],
    gpu_type: GpuType,
    servers: Ints,
    idle: Ints,
    spreaders: frozenset[int],
) -> dict[_Key, _Block]:
    takers: dict[int, list[int]] = {}
    for i, job in enumerate(jobs):
        if gpu_type in job.throughput:
            for size in dict.fromkeys(job.reqs):
                takers.setdefault(size, []).append(i)
    blocks = {}
    for size, in_one, spread in by_size(servers, idle, sorted(takers)):
        able = takers[size]
        rates = [interpolate(jobs[i].throughput[gpu_type].aggregated, size) for i in able]
        blocks[gpu_type, size, 1] = _block(able, rates, in_one)
        able = [i for i in able if i in spreaders]
        count = spread.servers.shape[1]
        rates = [interpolate(jobs[i].throughput[gpu_type].distributed, count) for i in able]
        blocks[gpu_type, size, count] = _block(able, rates, spread)
    return blocks


def _block(jobs: list[int], rates: list[float], shapes: ShapesOfSize) -> _Block:
    per_gpu = np.array(rates, dtype=np.float64)
    runs = np.isfinite(per_gpu) & (per_gpu > 0)
    return _Block(np.array(jobs, dtype=np.int64)[runs], per_gpu[runs], shapes)


@dataclass(frozen=True, slots=True)
class _Present:
    """Where a running job is now."""

    job: int
    key: _Key
    shape: ShapesOfSize
    throughput: float


def _presents(jobs: Sequence[Job], nodes: Sequence[Node], idle: Ints) -> list[_Present]:
    index = {node.name: i for i, node in enumerate(nodes)}
    types = {node.name: node.gpu_type for node in nodes}
    found = []
    for i, job in enumerate(jobs):
        parts = sorted((index.get(name, -1), gpus) for name, gpus in job.running)
        if not parts or any(t < 0 or gpus > idle[t] for t, gpus in parts):
            continue
        throughput = configuration_throughput(job, job.running, types)
        if throughput > 0:
            key = (nodes[parts[0][0]].gpu_type, job.running.gpus, len(parts))
            shape = ShapesOfSize(*(np.array([column]) for column in zip(*parts, strict=True)))
            found.append(_Present(i, key, shape, throughput))
    return found


def _fill(
    job_count: int,
    blocks: Mapping[_Key, _Block],
    factors: Factors,
    presents: Sequence[_Present],
    pool: Ints,
) -> Configurations:
    columns_of = np.zeros(job_count, dtype=np.int64)
    for block in blocks.values():
        columns_of[block.jobs] += len(block.shapes)
    found = [_find(present, blocks.get(present.key)) for present in presents]
    for present, place in zip(presents, found, strict=True):
        columns_of[present.job] += place is None
    start = np.concatenate([[0], np.cumsum(columns_of)])
    shape = np.empty(start[-1], dtype=np.int32)
    throughput = np.empty(start[-1])
    cursor, first_shape, first_column = start[:-1].copy(), 0, {}
    for key, block in blocks.items():
        first_column[key] = cursor[block.jobs]
        at = first_column[key][:, None] + np.arange(len(block.shapes))
        shape[at] = first_shape + np.arange(len(block.shapes))
        slowest = factors.slowest(block.jobs, block.shapes.servers)
        throughput[at] = block.per_gpu[:, None] * slowest * key[1]
        cursor[block.jobs] += len(block.shapes)
        first_shape += len(block.shapes)
    present_column = np.full(job_count, -1, dtype=np.int64)
    own_shapes: list[ShapesOfSize] = []
    for present, place in zip(presents, found, strict=True):
        if place is None:
            at = cursor[present.job]
            shape[at] = first_shape + len(own_shapes)
            throughput[at] = present.throughput
            own_shapes.append(present.shape)
        else:
            at = first_column[present.key][place[0]] + place[1]
        present_column[present.job] = at
    shapes = join([*(block.shapes for block in blocks.values()), *own_shapes])
    return Configurations(start, shape, throughput, present_column, shapes, pool, factors.mean())


def _find(present: _Present, block: _Block | None) -> tuple[int, int] | None:
    """Row and shape of ``present`` in its block, where the rules made it a configuration anyway."""
    if block is None or not len(block.shapes):
        return None
    row = int(np.searchsorted(block.jobs, present.job))
    at = int(np.searchsorted(block.shapes.servers[:, 0], present.shape.servers[0, 0]))
    if row == len(block.jobs) or block.jobs[row] != present.job or at == len(block.shapes):
        return None
    same = np.array_equal(block.shapes.servers[at], present.shape.servers[0])
    return (
        (row, at) if same and np.array_equal(block.shapes.gpus[at], present.shape.gpus[0]) else None
    )

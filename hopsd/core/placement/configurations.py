"""Configurations: every placement open to a job (section 3.6 of the paper).

A placement ``{server: gpus}`` is a *shape*; many jobs can take the same one. A *column* is one
job with one shape. Columns live in flat arrays, sorted by job, so that a million of them cost
megabytes and milliseconds.

What a column takes is counted in *rows*: the GPUs of every server, the cores and the memory of
servers that could run short of them, and the limits that could bind. A job that needs a server for
itself takes all its GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from hopsd.core.placement.allowances import Allowance
from hopsd.core.placement.available import AvailableResources, cores_of, memory_of
from hopsd.core.placement.contract import ONE, Form, form_of, in_one, may_spread, spread
from hopsd.core.placement.demands import Demands
from hopsd.core.placement.factors import Factors
from hopsd.core.placement.shapes import Neighbours, Shapes, ShapesOfSize, join
from hopsd.core.speed.throughput import configuration_throughput, per_gpu
from hopsd.model.arrays import Bools, Floats, Ints
from hopsd.model.ids import GpuType
from hopsd.model.job import Job
from hopsd.model.rules import Rules


@dataclass(frozen=True, slots=True)
class Configurations:
    """All columns; those of job ``i`` are ``start[i]:start[i + 1]``; ``shape`` indexes ``shapes``.

    ``throughput``: samples per second of the whole job. ``present[i]``: the column that is
    where the job runs now, -1 for none. ``pool`` (servers,): the GPU type of each as a number;
    ``speed`` (servers,): its server factor, mean over the jobs.

    ``capacity`` (rows,): how much there is of each row, the GPUs of every server first.
    ``server`` (rows,): the server of each row, -1 for a limit. A column takes what the item
    ``shape`` of ``demands`` takes and, if limits could bind any job, the item ``share``.
    """

    start: Ints
    shape: npt.NDArray[np.int32]
    throughput: Floats
    present: Ints
    shapes: Shapes
    pool: Ints
    speed: Floats
    demands: Demands
    capacity: Ints
    server: Ints
    share: npt.NDArray[np.int32] | None = None

    @property
    def jobs(self) -> int:
        """The number of jobs."""
        return len(self.start) - 1

    @property
    def short_of_more_than_gpus(self) -> bool:
        """Whether a server could run short of cores or memory."""
        return bool(np.any(self.server[len(self.pool) :] >= 0))

    def __len__(self) -> int:
        return len(self.shape)

    def job_of_column(self) -> npt.NDArray[np.int32]:
        """The job of every column, (columns,)."""
        return np.repeat(np.arange(self.jobs, dtype=np.int32), np.diff(self.start))

    def some(self, keep: Ints) -> Configurations:
        """Only the columns ``keep``, sorted; jobs keep their numbers."""
        stays = (self.present >= 0) & np.isin(self.present, keep)
        return replace(
            self,
            start=np.searchsorted(keep, self.start),
            shape=self.shape[keep],
            share=None if self.share is None else self.share[keep],
            throughput=self.throughput[keep],
            present=np.where(stays, np.searchsorted(keep, self.present), -1),
        )


def generate(
    jobs: Sequence[Job],
    available: AvailableResources,
    sensitivity: Sequence[float | None],
    *,
    sigma: float,
    keep_present: bool,
    allowances: Sequence[Allowance] = (),
) -> Configurations:
    """All configurations of ``jobs`` on the available resources.

    A sensitive job (``sensitivity > sigma``) is spread only on types whose largest server is
    smaller than its smallest requirement, or where its rules demand several servers; a job
    without a sensitivity never. ``keep_present``: where a running job is now is one of its
    configurations.
    """
    nodes = available.nodes
    rows = _ServerRows(available, jobs)
    claims = _Claims(jobs, available, rows)
    blocks: dict[_Key, _Block] = {}
    pool = np.zeros(len(nodes), dtype=np.int64)
    for number, gpu_type in enumerate(dict.fromkeys(node.gpu_type for node in nodes)):
        servers = np.array([i for i, node in enumerate(nodes) if node.gpu_type == gpu_type])
        pool[servers] = number
        largest = max(nodes[i].gpus for i in servers)
        spreaders = _may_spread(jobs, gpu_type, largest, sensitivity, sigma)
        for claim in range(len(claims.rules)):
            found = _blocks_of_type(jobs, gpu_type, servers, claims, claim, spreaders)
            blocks |= {key: block for key, block in found if len(block.jobs) and len(block.shapes)}
    factors = Factors(jobs, nodes)
    presents = _presents(jobs, available, claims) if keep_present else []
    filled = _fill(jobs, blocks, factors, presents, pool, claims, rows)
    return _with_limits(filled, jobs, allowances)


class _ServerRows:
    """The rows of the servers: GPUs of each, cores and memory where jobs could be short of them."""

    def __init__(self, available: AvailableResources, jobs: Sequence[Job]) -> None:
        self.available = available
        count, one = len(available.nodes), np.ones(1, dtype=np.int64)
        rules = {job.rules for job in jobs}
        cores = max((int(cores_of(r, one)[0]) for r in rules), default=0)
        memory = max((int(memory_of(r, one)[0]) for r in rules), default=0)
        idle = np.maximum(available.gpus, 0)
        self._counts = np.arange(int(idle.max(initial=0)) + 1)
        self._known: dict[Rules, tuple[Ints, Ints]] = {}
        short_of_cores = np.flatnonzero(available.cores < cores * idle.astype(np.float64))
        short_of_memory = np.flatnonzero(available.memory < memory * idle.astype(np.float64))
        self.cores, self.memory = np.full(count, -1), np.full(count, -1)
        self.cores[short_of_cores] = count + np.arange(len(short_of_cores))
        self.memory[short_of_memory] = count + len(short_of_cores) + np.arange(len(short_of_memory))
        self.capacity = np.concatenate(
            [
                available.gpus,
                np.maximum(available.cores[short_of_cores], 0),
                np.maximum(available.memory[short_of_memory], 0),
            ]
        )
        self.server = np.concatenate([np.arange(count), short_of_cores, short_of_memory])

    def _of_counts(self, rules: Rules) -> tuple[Ints, Ints]:
        """The cores and the memory that 0, 1, 2, ... GPUs on one server take."""
        if rules not in self._known:
            self._known[rules] = cores_of(rules, self._counts), memory_of(rules, self._counts)
        return self._known[rules]

    def demands(self, shapes: ShapesOfSize, rules: Rules) -> Demands:
        """What shapes under ``rules`` take, and never more of a row than there is."""
        servers, gpus = shapes.servers, shapes.gpus
        if rules.exclusive:
            row, amount, used = servers, self.available.gpus[servers], np.ones_like(servers, bool)
        else:
            parts = [(servers, gpus)]
            for own, taken in zip((self.cores, self.memory), self._of_counts(rules), strict=True):
                if (own[servers] >= 0).any():
                    parts.append((own[servers], taken[gpus]))
            row = np.concatenate([r for r, _ in parts], axis=1)
            used = row >= 0
            amount = np.concatenate([a for _, a in parts], axis=1)
            amount = np.minimum(amount, self.capacity[np.maximum(row, 0)])
        start = np.concatenate([[0], np.cumsum(used.sum(axis=1))])
        return Demands(start.astype(np.int64), row[used], amount[used])


class _Claims:
    """Jobs grouped by what they could take of the cluster under their rules.

    ``of`` (jobs,): the claim (group) of each. ``rules`` (claims,): those of one of its jobs;
    ``allowed``: which servers they may use; ``most``: S_t.
    """

    def __init__(
        self, jobs: Sequence[Job], available: AvailableResources, rows: _ServerRows
    ) -> None:
        self.rules: list[Rules] = []
        self.allowed: list[Bools] = []
        self.most: list[Ints] = []
        known: dict[object, int] = {}
        by_rules: dict[Rules, int] = {}
        of = []
        for job in jobs:
            if job.rules not in by_rules:
                allowed, most = available.allowed(job.rules), available.usable_gpus(job.rules)
                key = allowed.tobytes(), most.tobytes(), _what_it_takes(job.rules, rows)
                claim = known.setdefault(key, len(self.rules))
                if claim == len(self.rules):
                    self.rules.append(job.rules)
                    self.allowed.append(allowed)
                    self.most.append(most)
                by_rules[job.rules] = claim
            of.append(by_rules[job.rules])
        self.of = np.array(of, dtype=np.int64)


def _what_it_takes(rules: Rules, rows: _ServerRows) -> object:
    """A key that is equal for rules that take the same of the program's rows."""
    if rules.exclusive:
        return True
    cores = rules.cores_per_gpu if (rows.cores >= 0).any() else 0.0
    memory = (rules.memory_mb_per_gpu, rules.memory_mb_per_node)
    return cores, memory if (rows.memory >= 0).any() else (0.0, 0.0)


_Key = tuple[int, GpuType, int, int, Form]
"""Claim, GPU type, size, servers, form."""


@dataclass(frozen=True, slots=True)
class _Block:
    """Jobs and shapes with the same key: every pair is a column.

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
    return frozenset(
        i
        for i, (job, rho) in enumerate(zip(jobs, sensitivity, strict=True))
        if may_spread(job, gpu_type, largest, rho, sigma)
    )


def _blocks_of_type(
    jobs: Sequence[Job],
    gpu_type: GpuType,
    servers: Ints,
    claims: _Claims,
    claim: int,
    spreaders: frozenset[int],
) -> Iterator[tuple[_Key, _Block]]:
    takers: dict[int, list[int]] = {}
    for i in np.flatnonzero(claims.of == claim).tolist():
        if gpu_type in jobs[i].throughput:
            for size in dict.fromkeys(jobs[i].reqs):
                if jobs[i].rules.enough(gpu_type, size):
                    takers.setdefault(size, []).append(i)
    open_to_it = servers[claims.allowed[claim][servers]]
    neighbours = Neighbours(open_to_it, claims.most[claim][open_to_it])
    for size, able in sorted(takers.items()):
        one = [i for i in able if in_one(jobs[i].rules, size)]
        rates = [per_gpu(jobs[i].throughput[gpu_type], size, 1) for i in one]
        yield (claim, gpu_type, size, 1, ONE), _block(one, rates, neighbours.in_one(size))
        forms: dict[Form, list[int]] = {}
        for i in able:
            if i in spreaders:
                forms.setdefault(form_of(jobs[i].rules), []).append(i)
        for form, several in forms.items():
            shapes = spread(neighbours, size, form)
            count = shapes.servers.shape[1]
            rates = [per_gpu(jobs[i].throughput[gpu_type], size, count) for i in several]
            yield (claim, gpu_type, size, count, form), _block(several, rates, shapes)


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
    rules: Rules


def _presents(
    jobs: Sequence[Job], available: AvailableResources, claims: _Claims
) -> list[_Present]:
    nodes, idle = available.nodes, available.gpus
    index = {node.name: i for i, node in enumerate(nodes)}
    types = {node.name: node.gpu_type for node in nodes}
    found = []
    for i, job in enumerate(jobs):
        parts = sorted((index.get(name, -1), gpus) for name, gpus in job.running)
        if not parts or any(t < 0 or gpus > idle[t] for t, gpus in parts):
            continue
        throughput = configuration_throughput(job, job.running, types)
        if throughput > 0:
            form = ONE if len(parts) == 1 else form_of(job.rules)
            gpu_type = nodes[parts[0][0]].gpu_type
            key = int(claims.of[i]), gpu_type, job.running.gpus, len(parts), form
            shape = ShapesOfSize(*(np.array([column]) for column in zip(*parts, strict=True)))
            found.append(_Present(i, key, shape, throughput, job.rules))
    return found


def _fill(
    jobs: Sequence[Job],
    blocks: Mapping[_Key, _Block],
    factors: Factors,
    presents: Sequence[_Present],
    pool: Ints,
    claims: _Claims,
    rows: _ServerRows,
) -> Configurations:
    columns_of = np.zeros(len(jobs), dtype=np.int64)
    for block in blocks.values():
        columns_of[block.jobs] += len(block.shapes)
    found = [_find(present, blocks.get(present.key)) for present in presents]
    for present, place in zip(presents, found, strict=True):
        columns_of[present.job] += place is None
    start = np.concatenate([[0], np.cumsum(columns_of)])
    shape = np.empty(start[-1], dtype=np.int32)
    throughput = np.empty(start[-1])
    cursor, first_shape, first_column = start[:-1].copy(), 0, {}
    demands = []
    for key, block in blocks.items():
        first_column[key] = cursor[block.jobs]
        at = first_column[key][:, None] + np.arange(len(block.shapes))
        shape[at] = first_shape + np.arange(len(block.shapes))
        slowest = factors.slowest(block.jobs, block.shapes.servers, key[2])
        throughput[at] = block.per_gpu[:, None] * slowest * key[2]
        cursor[block.jobs] += len(block.shapes)
        first_shape += len(block.shapes)
        demands.append(rows.demands(block.shapes, claims.rules[key[0]]))
    present_column = np.full(len(jobs), -1, dtype=np.int64)
    own_shapes: list[ShapesOfSize] = []
    for present, place in zip(presents, found, strict=True):
        if place is None:
            at = cursor[present.job]
            shape[at] = first_shape + len(own_shapes)
            throughput[at] = present.throughput
            own_shapes.append(present.shape)
            demands.append(rows.demands(present.shape, present.rules))
        else:
            at = first_column[present.key][place[0]] + place[1]
        present_column[present.job] = at
    return Configurations(
        start,
        shape,
        throughput,
        present_column,
        join([*(block.shapes for block in blocks.values()), *own_shapes]),
        pool,
        factors.mean(),
        Demands.joined(demands),
        rows.capacity,
        rows.server,
    )


def _find(present: _Present, block: _Block | None) -> tuple[int, int] | None:
    """Row and shape of ``present`` in its block, if it is a configuration there already."""
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


def _with_limits(
    columns: Configurations, jobs: Sequence[Job], allowances: Sequence[Allowance]
) -> Configurations:
    """``columns`` with a row for every bound that jobs could reach, and what each column takes."""
    if not allowances:
        return columns
    gpus_rows: list[list[tuple[int, int]]] = [[] for _ in jobs]
    count_rows: list[list[int]] = [[] for _ in jobs]
    capacity = columns.capacity.tolist()
    most = _largest(columns)
    for allowance in allowances:
        members = [i for i, job in enumerate(jobs) if job.id in allowance.limit.jobs and most[i]]
        taken = allowance.limit.taken
        if allowance.gpus is not None and allowance.gpus < sum(
            taken(jobs[i].id, int(most[i])) for i in members
        ):
            for i in members:
                gpus_rows[i].append((len(capacity), taken(jobs[i].id, 1)))
            capacity.append(allowance.gpus)
        if allowance.count is not None and allowance.count < len(members):
            for i in members:
                count_rows[i].append(len(capacity))
            capacity.append(allowance.count)
    if len(capacity) == len(columns.capacity):
        return columns
    sizes = columns.shapes.sizes()
    share = np.full(len(columns), len(columns.shapes), dtype=np.int32)
    items: dict[object, int] = {None: len(columns.shapes)}
    entries: list[list[tuple[int, int]]] = [[(0, 0)]]
    for i, (first, end) in enumerate(pairwise(columns.start.tolist())):
        if not gpus_rows[i] and not count_rows[i]:
            continue
        own, which = np.unique(sizes[columns.shape[first:end]], return_inverse=True)
        numbers = []
        for size in own.tolist():
            entry = [(row, size * each) for row, each in gpus_rows[i]]
            entry += [(row, 1) for row in count_rows[i]]
            item = items.setdefault(tuple(entry), len(columns.shapes) + len(entries))
            if item == len(columns.shapes) + len(entries):
                entries.append(entry)
            numbers.append(item)
        share[first:end] = np.array(numbers, dtype=np.int32)[which.ravel()]
    flat = [entry for item in entries for entry in item]
    shares = Demands(
        np.concatenate([[0], np.cumsum([len(item) for item in entries])]).astype(np.int64),
        np.array([row for row, _ in flat], dtype=np.int64),
        np.array([amount for _, amount in flat], dtype=np.int64),
    )
    whole = np.array(capacity, dtype=np.int64)
    none = np.full(len(whole) - len(columns.capacity), -1)
    return replace(
        columns,
        demands=Demands.joined([columns.demands, shares]),
        capacity=whole,
        server=np.concatenate([columns.server, none]),
        share=share,
    )


def _largest(columns: Configurations) -> Ints:
    """The GPUs of every job's largest column, (jobs,); 0 for one without."""
    most = np.zeros(columns.jobs, dtype=np.int64)
    filled = np.diff(columns.start) > 0
    if filled.any():
        sizes = columns.shapes.sizes()[columns.shape]
        most[filled] = np.maximum.reduceat(sizes, columns.start[:-1][filled])
    return most

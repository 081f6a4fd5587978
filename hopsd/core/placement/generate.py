"""Generates the configurations of jobs on a cluster (section 3.6 of the paper).

Jobs that could use the same resources of the cluster, with the same size on one GPU type, share
their shapes: such a block has a column for every pair of one of its jobs and one of its shapes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from hopsd.core.placement.allowed_shapes import (
    SINGLE_NODE,
    Form,
    form_of,
    in_one,
    may_spread,
    spread,
)
from hopsd.core.placement.available import AvailableResources
from hopsd.core.placement.configurations import Configurations
from hopsd.core.placement.demands import Demands
from hopsd.core.placement.factors import Factors
from hopsd.core.placement.limit_rows import with_limits
from hopsd.core.placement.rack_sets import (
    NO_LEVELS,
    LeafServers,
    Levels,
    RackFamily,
    RackRule,
    can_span,
    leaf_numbers,
    leaves_of,
    union,
)
from hopsd.core.placement.remaining_limits import RemainingLimit
from hopsd.core.placement.segments import Segments
from hopsd.core.placement.server_rows import ServerRows
from hopsd.core.placement.shapes import Neighbours, ShapesOfSize, join, ramp
from hopsd.core.speed.throughput import configuration_throughput, per_gpu
from hopsd.model.arrays import Bools, Floats, Ints
from hopsd.model.ids import GpuType
from hopsd.model.job import Job
from hopsd.model.rules import Rules, ShapeRule

MAX_WRITTEN = 1 << 21
"""More columns than this are not written out, if many jobs share their shapes and their factors."""

MAX_SLID_SERVERS = 64
"""GPU types with more servers have enough small jobs to use what spread jobs leave over."""

# Minimum columns per set of shapes and factors: with fewer, written columns are priced faster.
_COLUMNS_PER_SET = 10_000


NO_MORE: Mapping[Hashable, ShapesOfSize] = {}


def generate(
    jobs: Sequence[Job],
    available: AvailableResources,
    sensitivity: Sequence[float | None],
    *,
    sigma: float,
    keep_present: bool,
    remaining_limits: Sequence[RemainingLimit] = (),
    slide: bool = False,
    sets: Mapping[Hashable, ShapesOfSize] = NO_MORE,
) -> Configurations:
    """Return all configurations of ``jobs`` on the available resources.

    A sensitive job (``sensitivity > sigma``) is spread only on types whose largest server is
    smaller than its smallest requirement, or if its rules demand several servers; a job without a
    sensitivity is never spread. ``keep_present``: the present allocation of a running job is one of
    its configurations. ``slide``: jobs too large for one server may also leave GPUs on their first
    one, on types with at most ``MAX_SLID_SERVERS`` servers for which :meth:`_JobClasses.alike` is
    true. ``sets``: additional sets of servers to list, by the key of their :class:`RackFamily`.
    """
    nodes = available.nodes
    rows = ServerRows(available, jobs)
    classes = _JobClasses(jobs, available, rows)
    leaves = leaf_numbers(nodes)
    has_segments = any(job.rules.consolidate_segments for job in jobs)
    blocks: dict[_Key, _Block] = {}
    slid_above: dict[GpuType, float] = {}
    pool = np.zeros(len(nodes), dtype=np.int64)
    for number, gpu_type in enumerate(dict.fromkeys(node.gpu_type for node in nodes)):
        servers = np.array([i for i, node in enumerate(nodes) if node.gpu_type == gpu_type])
        pool[servers] = number
        largest = max(nodes[i].gpus for i in servers)
        slides = slide and len(servers) <= MAX_SLID_SERVERS and classes.alike(servers, available)
        slid_above[gpu_type] = largest if slides else inf
        levels = Levels.from_nodes([nodes[i] for i in servers]) if has_segments else NO_LEVELS
        spreaders = _may_spread(jobs, gpu_type, largest, sensitivity, sigma)
        for job_class in range(len(classes.rules)):
            type_blocks = _blocks_of_type(
                jobs,
                gpu_type,
                servers,
                leaves,
                levels,
                classes,
                job_class,
                spreaders,
                slid_above[gpu_type],
                sets,
            )
            blocks |= {
                key: block for key, block in type_blocks if len(block.jobs) and len(block.shapes)
            }
    factors = Factors(jobs, nodes)
    presents = _presents(jobs, available, classes, slid_above) if keep_present else []
    filled_configurations = _fill(jobs, blocks, factors, presents, pool, classes, rows)
    return with_limits(filled_configurations, jobs, remaining_limits)


class _JobClasses:
    """Classes of jobs that could use the same resources of the cluster under their rules.

    ``class_of_job`` (jobs,): the class of each job. By class, ``rules``: the rules of one of its
    jobs; ``allowed_nodes``: the servers that the jobs may use; ``usable``: S_t.
    """

    def __init__(
        self, jobs: Sequence[Job], available: AvailableResources, rows: ServerRows
    ) -> None:
        self.rules: list[Rules] = []
        self.allowed_nodes: list[Bools] = []
        self.usable: list[Ints] = []
        numbers: dict[object, int] = {}
        by_rules: dict[Rules, int] = {}
        class_of = []
        for job in jobs:
            if job.rules not in by_rules:
                access, usable = (
                    available.allowed_nodes(job.rules),
                    available.usable_gpus(job.rules),
                )
                key = access.tobytes(), usable.tobytes(), rows.key(job.rules)
                job_class = numbers.setdefault(key, len(self.rules))
                if job_class == len(self.rules):
                    self.rules.append(job.rules)
                    self.allowed_nodes.append(access)
                    self.usable.append(usable)
                by_rules[job.rules] = job_class
            class_of.append(by_rules[job.rules])
        self.class_of_job = np.array(class_of, dtype=np.int64)

    def alike(self, servers: Ints, available: AvailableResources) -> bool:
        """Whether all jobs that may use any of ``servers`` may use all idle GPUs of each.

        If not, Slurm might only be able to start two jobs one after the other: they may have the
        same first server and different second ones, or the first may have GPUs left but no cores.
        """
        idle = available.gpus[servers]
        return all(
            access[servers].all() and np.array_equal(usable[servers], idle)
            for access, usable in zip(self.allowed_nodes, self.usable, strict=True)
            if access[servers].any()
        )


_Key = tuple[int, GpuType, int, int, Form]
"""Class of jobs, GPU type, size, number of servers, form."""


@dataclass(frozen=True, slots=True)
class _Block:
    """Jobs and shapes with the same key: every pair is a column.

    ``per_gpu`` (jobs,): samples per second per GPU before server factors. ``leaf_servers``: for
    jobs that are bound to racks, the servers of their sets; ``complete``: whether all such sets are
    listed.
    """

    jobs: Ints
    per_gpu: Floats
    shapes: ShapesOfSize
    leaf_servers: LeafServers | None = None
    complete: bool = True


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
    leaves: Ints,
    levels: Levels,
    classes: _JobClasses,
    job_class: int,
    spreaders: frozenset[int],
    slid_above: float,
    sets: Mapping[Hashable, ShapesOfSize],
) -> Iterator[tuple[_Key, _Block]]:
    takers: dict[int, list[int]] = {}
    for i in np.flatnonzero(classes.class_of_job == job_class).tolist():
        if gpu_type in jobs[i].throughput:
            for size in dict.fromkeys(jobs[i].reqs):
                if jobs[i].rules.enough(gpu_type, size):
                    takers.setdefault(size, []).append(i)
    open_to_it = servers[classes.allowed_nodes[job_class][servers]]
    leaf_servers = LeafServers(
        open_to_it,
        classes.usable[job_class][open_to_it],
        leaves[open_to_it],
        levels.at(classes.allowed_nodes[job_class][servers]),
    )
    neighbours = Neighbours(leaf_servers.servers, leaf_servers.idle)
    for size, members in sorted(takers.items()):
        single = [i for i in members if in_one(jobs[i].rules, size)]
        rates = [per_gpu(jobs[i].throughput[gpu_type], size, 1) for i in single]
        block = _block(single, rates, neighbours.in_one(size))
        if any(jobs[i].rules.rack_bound for i in single):
            block = replace(block, leaf_servers=leaf_servers)
        yield (job_class, gpu_type, size, 1, SINGLE_NODE), block
        forms: dict[Form, list[int]] = {}
        for i in members:
            if i in spreaders:
                form = form_of(jobs[i].rules, slides=_slides(jobs[i], slid_above))
                forms.setdefault(form, []).append(i)
        for form, several in forms.items():
            rack_sets = spread(leaf_servers, size, form)
            count = rack_sets.shapes.servers.shape[1]
            key = job_class, gpu_type, size, count, form
            shapes = rack_sets.shapes if key not in sets else union(rack_sets.shapes, sets[key])
            rates = [per_gpu(jobs[i].throughput[gpu_type], size, count) for i in several]
            block = _block(several, rates, shapes)
            if form.rack_rule is not None:
                block = replace(block, leaf_servers=leaf_servers, complete=rack_sets.complete)
            yield key, block


def _slides(job: Job, threshold: float) -> bool:
    """Whether a job may leave GPUs on its first server; an exclusive job leaves them to nobody."""
    return min(job.reqs) > threshold and not job.rules.exclusive and not job.rules.rack_bound


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
    jobs: Sequence[Job],
    available: AvailableResources,
    classes: _JobClasses,
    slid_above: Mapping[GpuType, float],
) -> list[_Present]:
    nodes, idle = available.nodes, available.gpus
    index = {node.name: i for i, node in enumerate(nodes)}
    types = {node.name: node.gpu_type for node in nodes}
    leaves = {node.name: node.leaf for node in nodes}
    presents = []
    for i, job in enumerate(jobs):
        parts = sorted((index.get(name, -1), gpus) for name, gpus in job.running)
        if not parts or any(t < 0 or gpus > idle[t] for t, gpus in parts):
            continue
        throughput = configuration_throughput(job, job.running, types, leaves)
        if throughput > 0:
            gpu_type = nodes[parts[0][0]].gpu_type
            slides = _slides(job, slid_above[gpu_type])
            form = SINGLE_NODE if len(parts) == 1 else form_of(job.rules, slides=slides)
            key = int(classes.class_of_job[i]), gpu_type, job.running.gpus, len(parts), form
            shape = ShapesOfSize(*(np.array([column]) for column in zip(*parts, strict=True)))
            presents.append(_Present(i, key, shape, throughput, job.rules))
    return presents


def _fill(
    jobs: Sequence[Job],
    blocks: Mapping[_Key, _Block],
    factors: Factors,
    presents: Sequence[_Present],
    pool: Ints,
    classes: _JobClasses,
    rows: ServerRows,
) -> Configurations:
    columns_of = np.zeros(len(jobs), dtype=np.int64)
    for block in blocks.values():
        columns_of[block.jobs] += len(block.shapes)
    places = [_find(present, blocks.get(present.key)) for present in presents]
    for present, place in zip(presents, places, strict=True):
        columns_of[present.job] += place is None
    start = np.concatenate([[0], np.cumsum(columns_of)])
    sets = sum(factors.kinds_of(block.jobs) for block in blocks.values())
    shares_columns = int(start[-1]) > MAX_WRITTEN and int(start[-1]) >= _COLUMNS_PER_SET * sets
    lines = _Segments() if shares_columns else _ColumnBuilder(int(start[-1]))
    cursor, first_shape, first_column = start[:-1].copy(), 0, {}
    demands = []
    for key, block in blocks.items():
        first_column[key] = cursor[block.jobs]
        lines.add(first_column[key], block, first_shape, key[2], factors)
        cursor[block.jobs] += len(block.shapes)
        first_shape += len(block.shapes)
        demands.append(rows.demands(block.shapes, classes.rules[key[0]]))
    present_column = np.full(len(jobs), -1, dtype=np.int64)
    own_shapes: list[ShapesOfSize] = []
    for present, place in zip(presents, places, strict=True):
        if place is None:
            column = int(cursor[present.job])
            lines.add_one(column, present, first_shape + len(own_shapes))
            own_shapes.append(present.shape)
            demands.append(rows.demands(present.shape, present.rules))
        else:
            column = first_column[present.key][place[0]] + place[1]
        present_column[present.job] = column
    items = _ServerItems(rows, first_shape + len(own_shapes))
    families = tuple(
        _family(jobs, key, block, block.leaf_servers, first_column[key], factors, items, classes)
        for key, block in blocks.items()
        if block.leaf_servers is not None
    )
    return lines.configurations(
        Configurations(
            start,
            np.zeros(0, dtype=np.int32),
            np.zeros(0),
            present_column,
            join([*(block.shapes for block in blocks.values()), *own_shapes]),
            pool,
            factors.mean(),
            Demands.concatenate([*demands, *items.demands]),
            rows.capacity,
            rows.server,
            leaf=factors.leaf,
            families=families,
        )
    )


class _ServerItems:
    """Demands on single servers, as items that are numbered from ``first`` on."""

    def __init__(self, rows: ServerRows, first: int) -> None:
        self.demands: list[Demands] = []
        self._rows, self._next = rows, first
        self._items: dict[tuple[int, bytes, bytes], Ints] = {}

    def items_of(self, servers: Ints, gpus: Ints, job_class: int, rules: Rules) -> Ints:
        """Return the items of a class's jobs for ``gpus`` on each of ``servers``, all (n,)."""
        key = job_class, servers.tobytes(), gpus.tobytes()
        if key not in self._items:
            shapes = ShapesOfSize(servers[:, None], gpus[:, None])
            self.demands.append(self._rows.demands(shapes, rules))
            self._items[key] = self._next + np.arange(len(servers))
            self._next += len(servers)
        return self._items[key]


def _family(
    jobs: Sequence[Job],
    key: _Key,
    block: _Block,
    leaf_servers: LeafServers,
    first: Ints,
    factors: Factors,
    items: _ServerItems,
    classes: _JobClasses,
) -> RackFamily:
    job_class, _, size, count, form = key
    rules, even = classes.rules[job_class], count == 1 or form.shape is ShapeRule.EVEN
    bound = np.array([jobs[i].rules.rack_bound for i in block.jobs.tolist()])
    first, members = first[bound], block.jobs[bound]
    eligible = leaf_servers.with_at_least(size // count if even else 1)
    gives = np.full(len(eligible.servers), size // count) if even else eligible.idle
    rule = form.rack_rule or RackRule()
    spans, first_on = np.unique(leaves_of(factors.leaf, block.shapes.servers), return_index=True)
    leaves = np.arange(1, rule.leaves(count, len(eligible.by_leaf())) + 1)
    example = first_on[np.abs(leaves[:, None] - spans).argmin(axis=1)]
    leaf_factors = factors.across(members, leaves)
    on_server = factors.slowest(members, eligible.servers[:, None], (size, count))
    examples = block.shapes.servers[example]
    slowness = factors.slowest(members, examples, (size, count))
    slowness *= factors.across(members, leaves_of(factors.leaf, examples))
    slowest, parts = np.full(len(members), inf), None
    if even:
        for position, servers in enumerate(can_span(rule, count, eligible, leaves).T):
            minimum = on_server[:, servers].min(axis=1, initial=inf) * leaf_factors[:, position]
            slowest = np.minimum(slowest, block.per_gpu[bound] * minimum * size)
    else:
        several = np.repeat(eligible.servers, gives)
        parts = items.items_of(several, ramp(gives) + 1, job_class, rules)
    return RackFamily(
        key,
        members,
        first,
        rule,
        count,
        size,
        block.shapes,
        leaves,
        example,
        on_server.max(axis=1)[:, None] * leaf_factors / slowness,
        eligible,
        items.items_of(eligible.servers, gives, job_class, rules),
        parts,
        block.complete,
        slowest,
    )


class _ColumnBuilder:
    """Builds columns that are written out."""

    def __init__(self, columns: int) -> None:
        self._shape, self._throughput = np.empty(columns, dtype=np.int32), np.empty(columns)

    def add(self, first: Ints, block: _Block, shape: int, size: int, factors: Factors) -> None:
        """Add the columns of a block's jobs, from ``first`` (jobs,) on."""
        columns = first[:, None] + np.arange(len(block.shapes))
        self._shape[columns] = shape + np.arange(len(block.shapes))
        slowest = factors.slowest_on_shapes(block.jobs, block.shapes.servers, size)
        self._throughput[columns] = block.per_gpu[:, None] * slowest * size

    def add_one(self, column: int, present: _Present, shape: int) -> None:
        """Add the column ``column``, where a job can only stay."""
        self._shape[column], self._throughput[column] = shape, present.throughput

    def configurations(self, remaining: Configurations) -> Configurations:
        """Add the columns to ``remaining``, the part that does not depend on how they are kept."""
        return replace(remaining, shape=self._shape, throughput=self._throughput)


class _Segments:
    """Builds columns as segments."""

    def __init__(self) -> None:
        self._parts: list[tuple[Ints, Ints, Ints, Floats, Ints, Floats]] = []
        self._slowness = [np.ones(1)]
        self._at = 1

    def add(self, first: Ints, block: _Block, shape: int, size: int, factors: Factors) -> None:
        """Add the columns of a block's jobs, from ``first`` (jobs,) on."""
        slowest, row = factors.by_kind(block.jobs, block.shapes.servers, size)
        count, ones_per_row = len(block.shapes), np.ones(len(first), dtype=np.int64)
        columns, sizes = self._at + count * row, np.full(len(first), float(size))
        self._parts.append((first, block.jobs, shape * ones_per_row, block.per_gpu, columns, sizes))
        self._slowness.append(slowest.ravel())
        self._at += slowest.size

    def add_one(self, column: int, present: _Present, shape: int) -> None:
        """Add the column ``column``, where a job can only stay."""
        unit = np.ones(1, dtype=np.int64)
        throughput = np.array([present.throughput])
        row = column * unit, present.job * unit, shape * unit, throughput, 0 * unit, np.ones(1)
        self._parts.append(row)

    def configurations(self, remaining: Configurations) -> Configurations:
        """Add the columns to ``remaining``, the part that does not depend on how they are kept."""
        first, job, item, per_gpu, position, size = (
            np.concatenate(arrays) for arrays in zip(*self._parts, strict=True)
        )
        order = np.argsort(first)
        start = np.append(first[order], remaining.start[-1])
        segments = Segments.build(
            start,
            job[order],
            item[order],
            per_gpu[order],
            position[order],
            size[order],
            np.concatenate(self._slowness),
        )
        return remaining.with_segments(segments)


def _find(present: _Present, block: _Block | None) -> tuple[int, int] | None:
    """Return the row and the shape of ``present`` in its block, if it is a configuration there."""
    if block is None or not len(block.shapes):
        return None
    row = int(np.searchsorted(block.jobs, present.job))
    if row == len(block.jobs) or block.jobs[row] != present.job:
        return None
    shapes, present_shape = block.shapes, present.shape
    begin, end = np.searchsorted(
        shapes.servers[:, 0], present_shape.servers[0, 0] + np.arange(2)
    ).tolist()
    matches = np.all(shapes.servers[begin:end] == present_shape.servers, axis=1)
    matches &= np.all(shapes.gpus[begin:end] == present_shape.gpus, axis=1)
    return (row, begin + int(matches.argmax())) if matches.any() else None

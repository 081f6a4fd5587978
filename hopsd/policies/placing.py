"""Greedy placement on whole GPUs, for policies that choose jobs first and place them afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from statistics import median_low

import numpy as np

from hopsd.core.placement.allowed_shapes import form_of, in_one, spread
from hopsd.core.placement.available import AvailableResources
from hopsd.core.placement.factors import Factors
from hopsd.core.placement.rack_sets import NO_LEVELS, LeafServers, Levels, leaf_numbers
from hopsd.core.placement.remaining_limits import limits_after
from hopsd.core.queue.competing import available_resources, staying_jobs
from hopsd.core.speed.throughput import configuration_throughput, per_gpu
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType
from hopsd.model.job import Job, Node
from hopsd.model.plan import Snapshot
from hopsd.model.rules import ANYWHERE, Rules, ShapeRule


class Servers:
    """Servers and their idle GPUs, on which placements are found and recorded."""

    def __init__(self, snapshot: Snapshot, available: AvailableResources | None = None) -> None:
        """Place on ``available``; by default on the resources that the plan may allocate."""
        names = [node.name for node in snapshot.nodes]
        self._available = available_resources(snapshot) if available is None else available
        self.idle = dict(zip(names, self._available.gpus.tolist(), strict=True))
        self.left = sum(self.idle.values())
        self._by_type: dict[GpuType, list[Node]] = {}
        for node in snapshot.nodes:
            self._by_type.setdefault(node.gpu_type, []).append(node)
        self._largest = {t: max(n.gpus for n in ns) for t, ns in self._by_type.items()}
        self._total = {t: sum(n.gpus for n in ns) for t, ns in self._by_type.items()}
        self._type = {node.name: node.gpu_type for node in snapshot.nodes}
        self._runs: dict[object, dict[int, bool]] = {}
        self._has_closed_nodes = bool(self._available.closed_nodes.any())
        self._whole = AvailableResources.idle(snapshot.nodes)
        self._at = {name: i for i, name in enumerate(names)}
        self._leaf = leaf_numbers(snapshot.nodes)
        self._nodes = snapshot.nodes
        self._remaining_limits = limits_after(snapshot.limits, staying_jobs(snapshot))

    def available(self) -> AvailableResources:
        """Remaining resources of every node."""
        return self._available.with_gpus(np.array(list(self.idle.values()), dtype=np.int64))

    def copy(self) -> Servers:
        """Return a copy to try placements on."""
        duplicate = copy(self)
        duplicate.idle = dict(self.idle)
        return duplicate

    def restrict(self, allocation: Allocation) -> Servers:
        """Return the same servers with only the GPUs of ``allocation`` idle."""
        part = copy(self)
        part.idle = dict.fromkeys(self.idle, 0) | allocation.as_dict()
        part.left = allocation.gpus
        return part

    @property
    def types(self) -> Mapping[GpuType, int]:
        """All GPUs by type, idle or not."""
        return self._total

    def type_of(self, allocation: Allocation) -> GpuType | None:
        """The GPU type of an allocation; None if it is unknown or empty."""
        return self._type.get(allocation.nodes[0]) if allocation else None

    def runs_on(self, job: Job, gpu_type: GpuType, gpus: int) -> bool:
        """Whether an idle cluster could hold the job with ``gpus`` GPUs of this type."""
        table = job.throughput.get(gpu_type)
        if table is None or gpu_type not in self._by_type:
            return False
        if not job.rules.enough(gpu_type, gpus):
            return False
        if job.rules != ANYWHERE:
            return self._runs_by_rules(job, gpu_type, gpus)
        if gpus <= self._largest[gpu_type]:
            return bool(table.aggregated)
        return bool(table.distributed) and gpus <= self._total[gpu_type]

    def _runs_by_rules(self, job: Job, gpu_type: GpuType, gpus: int) -> bool:
        could_take = self._could_take(job, self._whole)
        node_limits = [could_take(node) for node in self._by_type[gpu_type]]
        if in_one(job.rules, gpus) and max(node_limits) >= gpus:
            return True
        can_spread = bool(job.throughput[gpu_type].distributed)
        if job.rules.rack_bound:
            return can_spread and self._on_racks(job, gpu_type, gpus, node_limits) is not None
        return can_spread and parts_of(node_limits, gpus, job.rules) is not None

    def rate_on(self, job: Job, gpu_type: GpuType, gpus: int) -> float:
        """Samples per second on an idle cluster, in the tightest placement that the type allows."""
        if not self.runs_on(job, gpu_type, gpus):
            return 0.0
        table = job.throughput[gpu_type]
        if gpus <= self._largest[gpu_type]:
            return per_gpu(table, gpus, 1) * gpus
        servers = -(-gpus // self._largest[gpu_type])
        return per_gpu(table, gpus, servers) * gpus

    def rate_at(self, job: Job, allocation: Allocation) -> float:
        """Samples per second of the job on an allocation."""
        return configuration_throughput(job, allocation, self._type)

    def rigid(self, job: Job) -> int | None:
        """The job's single size: the (lower) median of the requirements that an idle cluster could
        hold.
        """
        runs = self._runs.setdefault((id(job.throughput), job.rules), {})
        for gpus in job.reqs:
            if gpus not in runs:
                runs[gpus] = any(self.runs_on(job, t, gpus) for t in self._by_type)
        runnable_counts = [gpus for gpus in job.reqs if runs[gpus]]
        return median_low(runnable_counts) if runnable_counts else None

    def _could_take(
        self, job: Job, available: AvailableResources | None = None
    ) -> Callable[[Node], int]:
        """Return a function: how many GPUs the job could take on a node, idle or ``available``."""
        if job.rules == ANYWHERE and available is None and not self._has_closed_nodes:
            return lambda node: self.idle[node.name]
        usable = (available or self._available).usable_gpus(job.rules)
        if available is not None:
            return lambda node: int(usable[self._at[node.name]])
        alone = job.rules.exclusive

        def could_take(node: Node) -> int:
            idle = self.idle[node.name]
            return 0 if alone and idle < node.gpus else min(idle, int(usable[self._at[node.name]]))

        return could_take

    def _is_allowed(self, job: Job, gpus: int) -> bool:
        """Whether every limit leaves ``gpus`` GPUs for the job besides the jobs that stay."""
        return all(
            remaining_limit.leaves(remaining_limit.limit.amount(job.id, gpus), 1)
            for remaining_limit in self._remaining_limits
            if job.id in remaining_limit.limit.jobs
        )

    def holds(self, allocation: Allocation) -> bool:
        """Whether all GPUs of an allocation are idle."""
        return all(self.idle.get(node, 0) >= gpus for node, gpus in allocation)

    def take(self, allocation: Allocation) -> None:
        """Mark GPUs as used."""
        for node, gpus in allocation:
            self.idle[node] -= gpus
        self.left -= allocation.gpus

    def give_back(self, allocation: Allocation) -> None:
        """Mark GPUs as idle again."""
        for node, gpus in allocation:
            self.idle[node] += gpus
        self.left += allocation.gpus

    def fastest(
        self,
        job: Job,
        gpus: int,
        types: Sequence[GpuType] | None = None,
        *,
        split: bool = True,
    ) -> Allocation | None:
        """Find the fastest placement on idle GPUs; among equal ones the tightest fit.

        If ``split`` is False, a job that one server could hold is never spread over several.
        """
        if gpus > self.left or not self._is_allowed(job, gpus):
            return None
        best: tuple[float, int, Allocation] | None = None
        for gpu_type in types if types is not None else self._by_type:
            table = job.throughput.get(gpu_type)
            if table is None or gpu_type not in self._by_type:
                continue
            if not job.rules.enough(gpu_type, gpus):
                continue
            shapes = [self._in_one_server(job, gpu_type, gpus)] if in_one(job.rules, gpus) else []
            if split or gpus > self._most_in_one(job, gpu_type, gpus):
                shapes.append(self._spread(job, gpu_type, gpus))
            for shape in shapes:
                if shape is not None and (best is None or shape[:2] > best[:2]):
                    best = shape
        return best[2] if best else None

    def _most_in_one(self, job: Job, gpu_type: GpuType, gpus: int) -> int:
        """How many GPUs the job could have on one server of an idle cluster."""
        if job.rules == ANYWHERE:
            return self._largest[gpu_type]
        if not in_one(job.rules, gpus):
            return 0
        could_take = self._could_take(job, self._whole)
        return max(could_take(node) for node in self._by_type[gpu_type])

    def _in_one_server(
        self, job: Job, gpu_type: GpuType, gpus: int
    ) -> tuple[float, int, Allocation] | None:
        could_take, differ = self._could_take(job), bool(job.server_factor or job.server_factor_at)
        best: tuple[float, int] | None = None
        node_name = None
        for node in self._by_type[gpu_type]:
            idle = self.idle[node.name]
            if could_take(node) >= gpus:
                key = (job.factor_on(node.name, gpus, 1) if differ else 1.0, gpus - idle)
                if best is None or key > best:
                    best, node_name = key, node.name
        if best is None or node_name is None:
            return None
        rate = per_gpu(job.throughput[gpu_type], gpus, 1) * best[0]
        return (rate, best[1], Allocation(((node_name, gpus),))) if rate > 0 else None

    def _spread(
        self, job: Job, gpu_type: GpuType, gpus: int
    ) -> tuple[float, int, Allocation] | None:
        """Place on the servers with the most idle GPUs, hence on the fewest possible."""
        table = job.throughput[gpu_type]
        if not table.distributed or gpus < 2:
            return None
        could_take = self._could_take(job)
        if job.rules.rack_bound:
            node_limits = [could_take(node) for node in self._by_type[gpu_type]]
            bound = self._on_racks(job, gpu_type, gpus, node_limits)
            return None if bound is None else (bound[0], -gpus, bound[1])
        nodes = sorted(self._by_type[gpu_type], key=lambda n: -could_take(n))
        counts = parts_of([could_take(node) for node in nodes], gpus, job.rules)
        if counts is None:
            return None
        parts = {node.name: count for node, count in zip(nodes, counts, strict=False)}
        slowest = min(job.factor_on(n, gpus, len(parts)) for n in parts)
        rate = per_gpu(table, gpus, len(parts)) * slowest
        return (rate, -gpus, Allocation.of(parts)) if rate > 0 else None

    def _on_racks(
        self, job: Job, gpu_type: GpuType, gpus: int, node_limits: Sequence[int]
    ) -> tuple[float, Allocation] | None:
        """Find the fastest of the listed sets of servers that obey the job's rack rules; return
        its speed and the allocation. ``node_limits``: what the job could take of each server of
        the type.
        """
        nodes = self._by_type[gpu_type]
        numbers = np.array([self._at[node.name] for node in nodes])
        idle = np.array(node_limits, dtype=np.int64)
        levels = Levels.from_nodes(nodes) if job.rules.consolidate_segments else NO_LEVELS
        leaf_servers = LeafServers(numbers, idle, self._leaf[numbers], levels)
        shapes = spread(leaf_servers, gpus, form_of(job.rules)).shapes
        if not len(shapes):
            return None
        count = shapes.servers.shape[1]
        factors = Factors([job], self._nodes)
        factor = factors.slowest_on_shapes(np.zeros(1, dtype=np.int64), shapes.servers, gpus)[0]
        best = int(np.argmax(factor))
        parts = zip(shapes.servers[best].tolist(), shapes.gpus[best].tolist(), strict=True)
        rate = per_gpu(job.throughput[gpu_type], gpus, count) * float(factor[best])
        allocation = Allocation.of({self._nodes[server].name: gpus for server, gpus in parts})
        return (rate, allocation) if rate > 0 else None


def parts_of(node_limits: Sequence[int], gpus: int, rules: Rules) -> list[int] | None:
    """Split ``gpus`` over the fewest servers, at least two, the emptiest first; None if impossible.

    ``node_limits``: how many GPUs the job could take of each server. ``rules`` may forbid a split.
    """
    node_limits = sorted(node_limits, reverse=True)
    if rules.shape is ShapeRule.NODE:
        return None
    node_limits = node_limits[: rules.max_nodes]
    if rules.shape is ShapeRule.EVEN:
        for count in range(2, min(gpus, len(node_limits)) + 1):
            gpus_per_node = gpus // count
            fits = gpus % count == 0 and node_limits[count - 1] >= gpus_per_node
            if fits and rules.per_node in (None, gpus_per_node):
                return [gpus_per_node] * count
        return None
    parts: list[int] = []
    missing = gpus
    for gpus_free in node_limits:
        if not missing or not gpus_free:
            break
        parts.append(min(missing, gpus_free))
        missing -= parts[-1]
    return None if missing or len(parts) < 2 else parts

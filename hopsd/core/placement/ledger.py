"""Tracks resources while jobs are placed one by one, and whether another placement is allowed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from hopsd.core.placement.available import AvailableResources, cores_of, memory_of
from hopsd.core.placement.rack_sets import NO_LEVELS, Levels, keeps_racks
from hopsd.core.placement.remaining_limits import RemainingLimit
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.model.job import Job
from hopsd.model.rules import Rules, ShapeRule


def keeps_shape(rules: Rules, allocation: Allocation) -> bool:
    """Whether an allocation has the shape that the rules demand."""
    counts = {gpus for _, gpus in allocation}
    if rules.max_nodes is not None and len(allocation.nodes) > rules.max_nodes:
        return False
    if rules.shape is ShapeRule.NODE:
        return len(allocation.nodes) == 1
    if rules.shape is ShapeRule.EVEN:
        return len(counts) == 1 and (rules.per_node is None or counts == {rules.per_node})
    return True


class Ledger:
    """Tracks what remains of resources and limits while placements are made."""

    def __init__(
        self, available: AvailableResources, remaining_limits: Sequence[RemainingLimit]
    ) -> None:
        self._available, self._remaining_limits = available, remaining_limits
        self._at = {node.name: i for i, node in enumerate(available.nodes)}
        self._type = [node.gpu_type for node in available.nodes]
        self._leaf = [node.leaf for node in available.nodes]
        self._nodes = available.nodes
        self._free = np.stack([available.gpus, available.cores, available.memory]).astype(np.int64)
        self._occupied_nodes: set[int] = set()
        self._closed_nodes: set[int] = set()
        self._use_of_limits = [(0, 0) for _ in remaining_limits]

    def may(self, job: Job, allocation: Allocation) -> bool:
        """Whether the job's rules, its limits and the other placements allow the allocation.

        A job's rules never keep it from staying where it runs now.
        """
        if any(name not in self._at for name in allocation.nodes):
            return False
        stays = allocation == job.running
        rules = job.rules
        leaves = [self._leaf[self._at[name]] for name in allocation.nodes]
        if not stays and not (
            keeps_shape(rules, allocation)
            and keeps_racks(rules, leaves, self._levels(rules, allocation))
        ):
            return False
        usable = self._available.usable_gpus(rules)
        for name, gpus in allocation:
            i = self._at[name]
            enough = gpus <= usable[i] and rules.enough(self._type[i], allocation.gpus)
            if not stays and not enough:
                return False
            if i in self._closed_nodes or (rules.exclusive and i in self._occupied_nodes):
                return False
        places, amounts = self._amounts(job, allocation)
        if np.any(amounts > self._free[:, places]):
            return False
        return all(
            remaining_limit.leaves(
                gpus + remaining_limit.limit.amount(job.id, allocation.gpus), count + 1
            )
            for remaining_limit, (gpus, count) in zip(
                self._remaining_limits, self._use_of_limits, strict=True
            )
            if job.id in remaining_limit.limit.jobs
        )

    def _levels(self, rules: Rules, allocation: Allocation) -> Levels:
        if not rules.consolidate_segments:
            return NO_LEVELS
        kind = self._type[self._at[allocation.nodes[0]]]
        type_nodes = [node for node in self._nodes if node.gpu_type == kind]
        positions = {node.name: i for i, node in enumerate(type_nodes)}
        return Levels.from_nodes(type_nodes).at(
            np.array([positions[name] for name in allocation.nodes])
        )

    def take(self, job: Job, allocation: Allocation) -> None:
        """Record the job's allocation as taken."""
        places, amounts = self._amounts(job, allocation)
        self._free[:, places] -= amounts
        self._occupied_nodes.update(places)
        if job.rules.exclusive:
            self._closed_nodes.update(places)
        for i, remaining_limit in enumerate(self._remaining_limits):
            if job.id in remaining_limit.limit.jobs:
                gpus, count = self._use_of_limits[i]
                self._use_of_limits[i] = (
                    gpus + remaining_limit.limit.amount(job.id, allocation.gpus),
                    count + 1,
                )

    def remaining_resources(self) -> AvailableResources:
        """Return the remaining resources."""
        count = len(self._available.nodes)
        is_occupied = np.array([i in self._occupied_nodes for i in range(count)], dtype=np.bool_)
        is_closed = np.array([i in self._closed_nodes for i in range(count)], dtype=np.bool_)
        gpus, cores, memory = self._free.copy()
        alone, unavailable = (
            self._available.alone & ~is_occupied,
            self._available.closed_nodes | is_closed,
        )
        return AvailableResources(self._available.nodes, gpus, cores, memory, alone, unavailable)

    def _amounts(self, job: Job, allocation: Allocation) -> tuple[list[int], np.ndarray]:
        """Return the allocation's nodes, and the GPUs, cores and memory taken there (3, nodes).

        A job that stays takes no more cores and memory than there are.
        """
        places = [self._at[name] for name in allocation.nodes]
        gpus = np.array([count for _, count in allocation], dtype=np.int64)
        amounts = np.stack([gpus, cores_of(job.rules, gpus), memory_of(job.rules, gpus)])
        if allocation == job.running:
            available = np.stack([self._available.cores[places], self._available.memory[places]])
            amounts[1:] = np.minimum(amounts[1:], available)
        return places, amounts


def grant_in_order(
    ledger: Ledger, requests: Iterable[tuple[Job, Allocation]]
) -> dict[JobId, Allocation]:
    """Grant each requested placement that is allowed given the ones granted before it."""
    grants: dict[JobId, Allocation] = {}
    for job, allocation in requests:
        if job.id not in grants and allocation and ledger.may(job, allocation):
            ledger.take(job, allocation)
            grants[job.id] = allocation
    return grants

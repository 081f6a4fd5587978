"""GPU types as pools, and where a job could run on an idle cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from types import MappingProxyType

import numpy as np

from hopsd.core.placement.allowed_shapes import could_spread, form_of, in_one, may_spread
from hopsd.core.placement.available import AvailableResources
from hopsd.core.placement.rack_sets import NO_LEVELS, LeafServers, Levels, leaf_numbers
from hopsd.core.placement.sensitivity import JobCache, Sensitivities
from hopsd.model.arrays import Ints
from hopsd.model.ids import GpuType
from hopsd.model.job import Job, Node
from hopsd.model.plan import PlanSettings
from hopsd.model.rules import ANYWHERE

DEFAULT_SIGMA = PlanSettings().sigma

_MAX_HELD = 16384
"""Number of answers that a pool keeps from plan to plan."""


@dataclass(frozen=True)
class Pool:
    """All schedulable servers of one GPU type; counts include all of their GPUs, idle or not."""

    gpu_type: GpuType
    nodes: Sequence[Node]
    gpus: int
    largest: int
    _hold_answers: dict[object, bool] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def _idle(self) -> AvailableResources:
        return AvailableResources.idle(self.nodes)

    @cached_property
    def _leaves(self) -> Ints:
        return leaf_numbers(self.nodes)

    @cached_property
    def _levels(self) -> Levels:
        return Levels.from_nodes(self.nodes)

    def holds(self, job: Job, rho: float | None, sigma: float) -> bool:
        """Whether the job would have a configuration in this pool if it were idle."""
        table = job.throughput.get(self.gpu_type)
        if table is None:
            return False
        if job.rules == ANYWHERE:
            smallest = min(job.reqs)
            return smallest <= self.largest or (bool(table.distributed) and smallest <= self.gpus)
        spreads = may_spread(job, self.gpu_type, self.largest, rho, sigma)
        key = job.rules, job.reqs, spreads
        answer = self._hold_answers.get(key)
        if answer is None:
            if len(self._hold_answers) >= _MAX_HELD:
                self._hold_answers.clear()
            answer = self._hold_answers[key] = self._holds(job, spreads=spreads)
        return answer

    def _holds(self, job: Job, *, spreads: bool) -> bool:
        access = self._idle.allowed_nodes(job.rules)
        usable = self._idle.usable_gpus(job.rules)[access]
        largest = int(usable.max(initial=0))
        sizes = [size for size in job.reqs if job.rules.enough(self.gpu_type, size)]
        if any(size <= largest and in_one(job.rules, size) for size in sizes):
            return True
        levels = self._levels.at(access) if job.rules.consolidate_segments else NO_LEVELS
        servers = LeafServers(np.arange(len(usable)), usable, self._leaves[access], levels)
        form = form_of(job.rules)
        return spreads and any(could_spread(servers, size, form) for size in sizes)


Pools = Mapping[GpuType, Pool]


def pools_of(nodes: Iterable[Node]) -> Pools:
    """Return pools by GPU type; they are made once for the same nodes, whatever is idle there."""
    newest = _newest
    return newest[1] if nodes is newest[0] else _pools_of(tuple(nodes))


@lru_cache(maxsize=4)
def _pools_of(nodes: tuple[Node, ...]) -> Pools:
    return _pools_of_idle(
        tuple(
            node
            if (node.idle, node.idle_cores, node.idle_memory_mb) == (node.gpus, None, None)
            else _when_idle(node)
            for node in nodes
        )
    )


@lru_cache(maxsize=_MAX_HELD)
def _when_idle(node: Node) -> Node:
    """Return the node as if it were idle; cached, since most nodes do not change between plans."""
    return replace(node, idle=node.gpus, idle_cores=None, idle_memory_mb=None)


@lru_cache(maxsize=4)
def _pools_of_idle(nodes: tuple[Node, ...]) -> Pools:
    by_type: dict[GpuType, list[Node]] = {}
    for node in nodes:
        by_type.setdefault(node.gpu_type, []).append(node)
    return MappingProxyType(
        {
            t: Pool(t, ns, sum(node.gpus for node in ns), max(node.gpus for node in ns))
            for t, ns in by_type.items()
        }
    )


_newest: tuple[Sequence[Node], Pools, JobCache] = (), {}, JobCache()


def job_cache(nodes: Sequence[Node]) -> JobCache:
    """Return the cache for the pools of ``nodes`` during one plan.

    It is shared by all callers that pass the same tuple, the nodes of the plan's snapshot.
    """
    global _newest  # noqa: PLW0603
    if not isinstance(nodes, tuple):
        return JobCache()
    newest = _newest
    if newest[0] is not nodes:
        pools = pools_of(nodes)
        newest = nodes, pools, JobCache(newest[2] if newest[1] is pools else None)
        _newest = newest
    return newest[2]


def could_run_on(job: Job, pool: Pool) -> bool:
    """Whether the pool could hold the job if it were idle.

    The job is in one server or, if its speed when spread is known, over several.
    """
    return could_run(job, {pool.gpu_type: pool})


def pools_for(job: Job, pools: Pools, sigma: float = DEFAULT_SIGMA) -> list[Pool]:
    """Return the pools that could hold the job."""
    return list(RunnableFilter(pools, sigma).pools(job))


def could_run(job: Job, pools: Pools, sigma: float = DEFAULT_SIGMA) -> bool:
    """Whether an idle cluster could run the job (if not, it waits with ``no_configuration``)."""
    return RunnableFilter(pools, sigma)(job)


class RunnableFilter:
    """Caches :func:`could_run` and :func:`pools_for` for many jobs on the same pools.

    It works like :class:`Sensitivities`.
    """

    def __init__(
        self, pools: Pools, sigma: float = DEFAULT_SIGMA, cache: JobCache | None = None
    ) -> None:
        self._pools, self._sigma = pools, sigma
        self._cache = cache or JobCache()
        self._rho = Sensitivities(pools, self._cache)

    def __call__(self, job: Job) -> bool:
        return bool(self.pools(job))

    def pools(self, job: Job) -> Sequence[Pool]:
        """Return the pools that could hold the job."""
        topic = "able", self._sigma, job.reqs, job.rules, job.sensitivity
        return self._cache.lookup(job, topic, lambda: self._able(job))

    def _able(self, job: Job) -> Sequence[Pool]:
        rho = None if job.rules == ANYWHERE else self._rho(job)
        return [pool for pool in self._pools.values() if pool.holds(job, rho, self._sigma)]

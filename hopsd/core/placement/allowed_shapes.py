"""The shapes that a job's rules allow."""

from __future__ import annotations

from typing import NamedTuple

from hopsd.core.placement.rack_sets import (
    NO_SETS,
    LeafServers,
    RackRule,
    RackSets,
    any_even_sets,
    any_filled_sets,
    even_sets,
    filled_sets,
)
from hopsd.core.placement.shapes import Neighbours
from hopsd.model.ids import GpuType
from hopsd.model.job import Job
from hopsd.model.rules import Rules, ShapeRule


class Form(NamedTuple):
    """The form of shapes: as in the rules, and whether uneven shapes may slide.

    Shapes that slide may also leave GPUs on their first server. On a single server the form is
    ``SINGLE_NODE``, whatever the job's rules.
    """

    shape: ShapeRule
    per_node: int | None = None
    max_nodes: int | None = None
    slides: bool = False
    segment: int | None = None
    max_switches: int | None = None
    spread_segments: bool = False
    consolidate_segments: bool = False

    @property
    def rack_rule(self) -> RackRule | None:
        """Which leaves the servers may be on; None for any, but the servers are neighbours."""
        if self.segment is None and self.max_switches is None:
            return None
        return RackRule(
            self.segment, self.max_switches, self.spread_segments, self.consolidate_segments
        )


SINGLE_NODE = Form(ShapeRule.NODE)


def form_of(rules: Rules, *, slides: bool = False) -> Form:
    """Return the form of the job's spread shapes."""
    return Form(
        rules.shape,
        rules.per_node,
        rules.max_nodes,
        slides,
        rules.segment,
        rules.max_switches,
        rules.spread_segments,
        rules.consolidate_segments,
    )


def in_one(rules: Rules, size: int) -> bool:
    """Whether the job may have ``size`` GPUs on one server."""
    return rules.per_node in (None, size)


def spread(servers: LeafServers, size: int, form: Form) -> RackSets:
    """Return the shapes that spread ``size`` GPUs over servers."""
    sets = _spread(servers, size, form)
    max_nodes = form.max_nodes
    return sets if max_nodes is None or sets.shapes.servers.shape[1] <= max_nodes else NO_SETS


def could_spread(servers: LeafServers, size: int, form: Form) -> bool:
    """Whether :func:`spread` would find any shape."""
    rule = form.rack_rule
    if rule is None or form.max_nodes is not None:
        return bool(len(spread(servers, size, form).shapes))
    if form.shape is ShapeRule.EVEN:
        return any_even_sets(servers, size, form.per_node, rule)
    return any_filled_sets(servers, size, rule)


def _spread(servers: LeafServers, size: int, form: Form) -> RackSets:
    rule, even = form.rack_rule, form.shape is ShapeRule.EVEN
    if rule is not None:
        return (
            even_sets(servers, size, form.per_node, rule)
            if even
            else filled_sets(servers, size, rule)
        )
    neighbours = Neighbours(servers.servers, servers.idle)
    if even:
        return RackSets(neighbours.even(size, form.per_node))
    return RackSets(neighbours.slid(size) if form.slides else neighbours.fill_servers(size))


def may_spread(job: Job, gpu_type: GpuType, largest: int, rho: float | None, sigma: float) -> bool:
    """Whether the job may span servers of a type whose largest one has ``largest`` GPUs."""
    table, rules = job.throughput.get(gpu_type), job.rules
    if table is None or not table.distributed or rho is None or rules.shape is ShapeRule.NODE:
        return False
    if rules.max_nodes == 1:
        return False
    smallest = min(job.reqs)
    is_demanded = rules.per_node is not None and rules.per_node < smallest
    return rho <= sigma or smallest > largest or is_demanded

"""The shapes that a job's rules allow."""

from __future__ import annotations

from hopsd.core.placement.shapes import NO_SHAPES, Neighbours, ShapesOfSize
from hopsd.model.ids import GpuType
from hopsd.model.job import Job
from hopsd.model.rules import Rules, ShapeRule

Form = tuple[ShapeRule, int | None, int | None, bool]
"""The form of shapes: rule, GPUs on each server, most servers, and whether uneven ones may leave
GPUs on their first server, too. On a single server it is ``ONE``, whatever the job's rule.
"""

ONE: Form = ShapeRule.NODE, None, None, False


def form_of(rules: Rules, *, slides: bool = False) -> Form:
    """The form of the job's spread shapes."""
    return rules.shape, rules.per_node, rules.max_nodes, slides


def in_one(rules: Rules, size: int) -> bool:
    """Whether the job may have ``size`` GPUs on one server."""
    return rules.per_node in (None, size)


def spread(neighbours: Neighbours, size: int, form: Form) -> ShapesOfSize:
    """The shapes that spread ``size`` GPUs over servers."""
    rule, per_node, most, slides = form
    if rule is ShapeRule.EVEN:
        found = neighbours.even(size, per_node)
    else:
        found = neighbours.slid(size) if slides else neighbours.filled(size)
    return found if most is None or found.servers.shape[1] <= most else NO_SHAPES


def may_spread(job: Job, gpu_type: GpuType, largest: int, rho: float | None, sigma: float) -> bool:
    """Whether the job may span servers of a type whose largest one has ``largest`` GPUs."""
    table, rules = job.throughput.get(gpu_type), job.rules
    if table is None or not table.distributed or rho is None or rules.shape is ShapeRule.NODE:
        return False
    if rules.max_nodes == 1:
        return False
    smallest = min(job.reqs)
    demanded = rules.per_node is not None and rules.per_node < smallest
    return rho <= sigma or smallest > largest or demanded

"""Relative speeds of GPU types, from workloads measured on several of them.

Until its own reports correct it, the best guess about a new training is that its speeds on types
where it was not measured have the same ratios as those of other workloads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from math import exp, log
from statistics import median

from hopsd.core.speed.estimator import EstimatorSettings
from hopsd.core.speed.theory import alone, credible
from hopsd.model import bounds
from hopsd.model.ids import GpuType, UserName, WorkloadName
from hopsd.model.isolation import find_failing_items
from hopsd.model.job import Shape
from hopsd.model.knowledge import NOBODY, Knowledge

MAX_WORKLOADS = 64
"""Number of workloads compared: the newest ones."""

MAX_RATIO = 32.0
"""No type counts as faster than another by more than this factor."""

_Speeds = dict[GpuType, dict[Shape, float]]


def with_type_speeds(knowledge: Knowledge, settings: EstimatorSettings) -> Knowledge:
    """Add the types' relative speeds to ``knowledge``; skip workloads that raise an error.

    There are none under ``paper_exact``: an unmeasured type counts like the mean of the others.
    """
    if settings.model.paper_exact:
        return knowledge
    speeds, _ = find_failing_items(
        _comparable(knowledge), lambda names: type_speeds(knowledge, names)
    )
    return replace(knowledge, type_speed=speeds)


def _comparable(knowledge: Knowledge) -> tuple[WorkloadName, ...]:
    """Return the newest workloads that were measured on several types."""
    types: dict[WorkloadName, set[GpuType]] = defaultdict(set)
    newest: dict[WorkloadName, float] = {}
    observations = [(r.workload, r.gpu_type, r.at) for r in knowledge.records]
    observations += [(fit.workload, fit.gpu_type, fit.at) for fit in knowledge.theory]
    for workload, gpu_type, time in observations:
        types[workload].add(gpu_type)
        newest[workload] = max(time, newest.get(workload, time))
    several = [name for name, gpu_types in types.items() if len(gpu_types) > 1]
    return tuple(sorted(several, key=lambda name: (-newest[name], name))[:MAX_WORKLOADS])


def type_speeds(knowledge: Knowledge, workloads: Collection[WorkloadName]) -> dict[GpuType, float]:
    """Return the speeds of one GPU relative to the type on which most ``workloads`` were measured.

    The reference type has 1. Each speed is the median over users of the median over the user's
    workloads, so that with three users no single one decides. A type without a workload in common
    with the reference type is missing.
    """
    by_workload = _mean_speeds(knowledge, frozenset(workloads))
    counts: dict[GpuType, int] = defaultdict(int)
    for speeds in by_workload.values():
        for gpu_type in speeds:
            counts[gpu_type] += 1
    if not counts:
        return {}
    reference = min(counts, key=lambda gpu_type: (-counts[gpu_type], gpu_type))
    votes: dict[GpuType, dict[UserName, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (user, _), speeds in sorted(by_workload.items()):
        for gpu_type in speeds.keys() - {reference}:
            ratio = _log_ratio(speeds[gpu_type], speeds.get(reference, {}))
            if ratio is not None:
                votes[gpu_type][user].append(ratio)
    limit = log(MAX_RATIO)
    relative = {
        gpu_type: exp(min(limit, max(-limit, median(map(median, by_user.values())))))
        for gpu_type, by_user in sorted(votes.items())
    }
    return {reference: 1.0, **relative} if relative else {}


def _mean_speeds(
    knowledge: Knowledge, workloads: Collection[WorkloadName]
) -> Mapping[tuple[UserName, WorkloadName], _Speeds]:
    """Return mean samples per second per GPU by user, workload, type and shape.

    A type that has only basic times gets the speed of one GPU.
    """
    sums: dict[tuple[UserName, WorkloadName], dict[GpuType, dict[Shape, list[float]]]] = (
        defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    )
    for record in knowledge.records:
        if record.workload in workloads and bounds.SPEED.holds(record.per_gpu):
            shape = record.gpus, record.nodes
            sums[record.user, record.workload][record.gpu_type][shape].append(record.per_gpu)
    speeds: dict[tuple[UserName, WorkloadName], _Speeds] = {
        key: {
            gpu_type: {shape: sum(values) / len(values) for shape, values in shapes.items()}
            for gpu_type, shapes in types.items()
        }
        for key, types in sums.items()
    }
    owners: dict[WorkloadName, list[UserName]] = defaultdict(list)
    for user, workload in speeds:
        owners[workload].append(user)
    for fit in filter(credible, knowledge.theory):
        if fit.workload in workloads:
            for user in owners[fit.workload] or [NOBODY]:
                speeds_by_shape = speeds.setdefault((user, fit.workload), {}).setdefault(
                    fit.gpu_type, {}
                )
                speeds_by_shape.setdefault((1, 1), alone(fit))
    return speeds


def _log_ratio(speeds: Mapping[Shape, float], reference: Mapping[Shape, float]) -> float | None:
    """Return the logarithm of the speed ratio of one GPU, from the smallest common shape."""
    common = min(speeds.keys() & reference.keys(), default=None)
    return None if common is None else log(speeds[common] / reference[common])

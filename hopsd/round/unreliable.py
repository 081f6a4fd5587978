"""Keeps jobs away from nodes that break jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hopsd.model.ids import JobId, NodeName
from hopsd.model.reading import JobReading
from hopsd.model.reason import Reason, ReasonCode


def shunned_nodes(
    jobs: Iterable[JobReading], unreliable: Mapping[NodeName, str]
) -> dict[JobId, frozenset[NodeName]]:
    """The nodes that plans keep each job from: what runs on one stays, and a user who names one
    gets it.
    """
    if not unreliable:
        return {}
    nodes_to_avoid = {
        job.id: frozenset(unreliable)
        - set(job.allocation.nodes)
        - (job.options.nodes or frozenset())
        for job in jobs
    }
    return {job: nodes for job, nodes in nodes_to_avoid.items() if nodes}


def with_shunned(
    waiting: Mapping[JobId, Reason],
    nodes_to_avoid: Mapping[JobId, frozenset[NodeName]],
    unreliable: Mapping[NodeName, str],
) -> dict[JobId, Reason]:
    """``waiting``, with the evidence in the reason of jobs that no other node has a place for."""
    reasons = dict(waiting)
    for job, nodes in nodes_to_avoid.items():
        if job in reasons and reasons[job].code is ReasonCode.NO_CONFIGURATION:
            evidence = "; ".join(f"{node} {unreliable[node]}" for node in sorted(nodes))
            reasons[job] = Reason(
                ReasonCode.NO_CONFIGURATION, f"{reasons[job].text}; not planned on: {evidence}"
            )
    return reasons

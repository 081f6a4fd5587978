"""Keeps jobs away from nodes that break jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hopsd.model.ids import JobId, NodeName
from hopsd.model.reading import JobReading
from hopsd.model.reason import Reason, ReasonCode


def shunned_nodes(
    jobs: Iterable[JobReading], unreliable: Mapping[NodeName, str]
) -> dict[JobId, frozenset[NodeName]]:
    """Return the nodes that plans avoid for each job.

    A job that already runs on such a node stays, and a job whose user names one may get it.
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
    """Add the evidence to the reasons of jobs that fit no other node."""
    reasons = dict(waiting)
    for job, nodes in nodes_to_avoid.items():
        if job in reasons and reasons[job].code is ReasonCode.NO_CONFIGURATION:
            evidence = "; ".join(f"{node} {unreliable[node]}" for node in sorted(nodes))
            reasons[job] = Reason(
                ReasonCode.NO_CONFIGURATION, f"{reasons[job].text}; not planned on: {evidence}"
            )
    return reasons

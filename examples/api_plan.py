"""Plan a snapshot, and plan it again without one of its nodes: what would change?

python examples/api_plan.py examples/files/snapshot.json n0
"""

from __future__ import annotations

import sys
from dataclasses import replace

from hopsd import api


def remove_node(snapshot: api.Snapshot, name: str) -> api.Snapshot:
    """Remove a node; its jobs wait again and release their other nodes."""
    node = api.NodeName(name)
    stopped_jobs = [job for job in snapshot.jobs if job.running.on(node)]
    nodes = tuple(
        replace(
            other_node,
            idle=other_node.idle + sum(job.running.on(other_node.name) for job in stopped_jobs),
        )
        for other_node in snapshot.nodes
        if other_node.name != node
    )
    jobs = tuple(
        replace(j, running=api.Allocation()) if j in stopped_jobs else j for j in snapshot.jobs
    )
    return replace(snapshot, nodes=nodes, jobs=jobs)


def main(path: str, node: str) -> None:
    snapshot, settings = api.read_snapshot(path)
    before = api.plan(snapshot, settings)
    after = api.plan(remove_node(snapshot, node), settings)
    print(f"objective {before.objective:.4g}, without {node} {after.objective:.4g}")
    for job in snapshot.jobs:
        was, becomes = (plan.placements.get(job.id) for plan in (before, after))
        if was != becomes:
            print(f"job {job.id}: {was or 'waits'}, then {becomes or 'waits'}")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["examples/files/snapshot.json", "n0"]))

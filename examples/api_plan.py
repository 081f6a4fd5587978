"""Plan a snapshot, and again without one of its nodes: what would change?

python examples/api_plan.py examples/files/snapshot.json n0
"""

from __future__ import annotations

import sys
from dataclasses import replace

from hopsd import api


def without(snapshot: api.Snapshot, drained: str) -> api.Snapshot:
    """The snapshot without a node; its jobs wait again, and leave what else they held."""
    node = api.NodeName(drained)
    stopped = [job for job in snapshot.jobs if job.running.on(node)]
    nodes = tuple(
        replace(each, idle=each.idle + sum(job.running.on(each.name) for job in stopped))
        for each in snapshot.nodes
        if each.name != node
    )
    jobs = tuple(replace(j, running=api.Allocation()) if j in stopped else j for j in snapshot.jobs)
    return replace(snapshot, nodes=nodes, jobs=jobs)


def main(path: str, drained: str) -> None:
    snapshot, settings = api.read_snapshot(path)
    before = api.plan(snapshot, settings)
    after = api.plan(without(snapshot, drained), settings)
    print(f"objective {before.objective:.4g}, without {drained} {after.objective:.4g}")
    for job in snapshot.jobs:
        was, becomes = (plan.placements.get(job.id) for plan in (before, after))
        if was != becomes:
            print(f"job {job.id}: {was or 'waits'}, then {becomes or 'waits'}")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["examples/files/snapshot.json", "n0"]))

"""Time one plan for 1,000 jobs on 10,000 nodes: ``python -m bench.allox.speed``.

Prints this process's CPU seconds, the best of three. Half of the nodes have a CPU, half a GPU.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from time import process_time

from bench.allox.workload import GPU
from hopsd.model.devices import CPU
from hopsd.model.ids import JobId, NodeName, UserName
from hopsd.model.job import Job, Node, ThroughputTable
from hopsd.model.plan import PlanSettings, RoundInfo, Snapshot
from hopsd.policies.registry import get


def snapshot(jobs: int, nodes: int) -> Snapshot:
    """A snapshot of idle nodes and of waiting jobs with different run times."""
    rng = random.Random(0)
    return Snapshot(
        0.0,
        RoundInfo(True, 360.0),
        tuple(Node(NodeName(f"n{i}"), CPU if i % 2 else GPU, 1, 1) for i in range(nodes)),
        tuple(
            Job(
                id=JobId(str(i)),
                user=UserName(f"user{i % 10}"),
                submit=0.0,
                wait_seconds=0.0,
                reqs=(1,),
                throughput={
                    GPU: ThroughputTable({1: 1.0}),
                    CPU: ThroughputTable({1: rng.uniform(0.1, 0.6)}),
                },
                samples=rng.lognormvariate(6.0, 1.5),
            )
            for i in range(jobs)
        ),
    )


def main(arguments: Sequence[str]) -> None:
    jobs, nodes = map(int, arguments) if arguments else (1_000, 10_000)
    queue = snapshot(jobs, nodes)
    for name in ("allox+", "allox"):
        seconds = []
        for _ in range(3):
            began = process_time()
            count = len(get(name)(queue, PlanSettings()).placements)
            seconds.append(process_time() - began)
        print(f"{name}: {count} of {jobs} jobs placed on {nodes} nodes in {min(seconds):.2f} s")


if __name__ == "__main__":
    main(sys.argv[1:])

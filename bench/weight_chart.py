"""The picture of docs/policies.md: how a job's weight under `hops+` grows while it waits.

python -m bench.weight_chart
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bench.result_file import save_svg
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, Node, ThroughputTable
from hopsd.model.plan import PlanSettings, RoundInfo, Snapshot
from hopsd.policies.registry import get
from hopsd.sim.svg import Axis, chart

PICTURE = Path("docs/img/policies-weight.svg")
HOURS = (1.0, 2.0, 5.0, 10.0, 20.0)
MAX_WAITED, MAX_WEIGHT = 24.0, 4.0
NODE = Node(NodeName("n0"), GpuType("a"), 1, 1)


def weight(hours: float, wait_hours: float) -> float:
    """Weight of a job of length ``hours`` relative to a new job of each other length."""
    jobs = [
        Job(
            JobId(f"{hour:g}"), UserName("u"), submit=0.0, wait_seconds=0.0, reqs=(1,),
            throughput={NODE.gpu_type: ThroughputTable({1: 1.0})}, samples=3600.0 * hour,
        )
        for hour in HOURS
    ]  # fmt: skip
    request = [
        replace(job, wait_seconds=3600.0 * wait_hours) if job.id == f"{hours:g}" else job
        for job in jobs
    ]
    snapshot = Snapshot(0.0, RoundInfo(True, 360.0), (NODE,), tuple(request))
    return get("hops+")(snapshot, PlanSettings()).jobs[JobId(f"{hours:g}")].priority


def main() -> None:
    hours = [MAX_WAITED * step / 96 for step in range(97)]
    lines = {
        f"job of {hour:g} h": [
            (wait, height) for wait in hours if (height := weight(hour, wait)) <= MAX_WEIGHT
        ]
        for hour in HOURS[1:]
    }
    lines["1 h, just come"] = [(0.0, weight(1.0, 0.0)), (MAX_WAITED, weight(1.0, 0.0))]
    title = "weight of a job among five"
    svg = chart(
        title,
        Axis("hours waited", 0.0, MAX_WAITED),
        Axis("weight", 0.0, MAX_WEIGHT),
        lines,
        steps=False,
    )
    save_svg(PICTURE, svg)


if __name__ == "__main__":
    main()

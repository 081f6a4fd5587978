"""Small situations to predict from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hopsd.core.queue.run_time import Expectation
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, Node, ThroughputTable
from hopsd.model.plan import RoundInfo, Snapshot
from hopsd.model.rules import Limit
from hopsd.predict.situation import Situation, situation_of

T = GpuType("t")
LINEAR = {T: ThroughputTable({1: 1.0}, {2: 1.0})}
ROUND = 100.0


def job(name: str, seconds: float | None, *reqs: int, gpus_by_node: Mapping[str, int] | None = None,
        limit: float | None = None, seconds_done: float = 0.0, submit: float = 0.0,
        **fields: object) -> Job:  # fmt: skip
    """A job that needs ``seconds`` on its single count of GPUs."""
    return Job(
        JobId(name),
        UserName("u"),
        submit,
        max(0.0, -submit),
        reqs,
        LINEAR,
        samples=None if seconds is None else seconds * reqs[0],
        samples_done=seconds_done * reqs[0],
        time_limit_seconds=limit,
        running=Allocation.of({NodeName(n): g for n, g in (gpus_by_node or {}).items()}),
        run_seconds=seconds_done,
        **fields,  # type: ignore[arg-type]
    )


def situation(
    jobs: Sequence[Job],
    sizes: Sequence[int] = (4,),
    expected: Mapping[JobId, Expectation] | None = None,
    limits: tuple[Limit, ...] = (),
) -> Situation:
    gpus_by_node = {
        node: gpus for job_of_situation in jobs for node, gpus in job_of_situation.running
    }
    nodes = tuple(
        Node(NodeName(f"n{i}"), T, size, size - gpus_by_node.get(NodeName(f"n{i}"), 0))
        for i, size in enumerate(sizes)
    )
    snapshot = Snapshot(1000.0, RoundInfo(first=False, seconds=ROUND), nodes, tuple(jobs), limits)
    return situation_of(snapshot, expected or {}, 1000.0 + ROUND, ROUND)

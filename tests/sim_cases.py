"""Small clusters and workloads whose schedules can be worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hopsd.model.ids import GpuType, JobId, NodeName, UserName, WorkloadName
from hopsd.model.job import ThroughputTable
from hopsd.model.scenario import Cluster, Server, Workload, WorkloadJob

A, B = GpuType("a"), GpuType("b")
NET = WorkloadName("net")


def cluster(**gpus: int) -> Cluster:
    """Servers of type a by name; those whose name begins with b are of type b."""
    return Cluster(
        tuple(
            Server(NodeName(name), B if name.startswith("b") else A, count)
            for name, count in gpus.items()
        )
    )


def job(
    name: int | str,
    samples: float,
    *reqs: int,
    submit: float = 0.0,
    preemptible: bool = True,
    workload: str = NET,
) -> WorkloadJob:
    return WorkloadJob(
        JobId(str(name)),
        UserName("u"),
        submit,
        WorkloadName(workload),
        samples,
        reqs or (1,),
        preemptible=preemptible,
    )


def workload(
    jobs: Sequence[WorkloadJob],
    *,
    a: float = 1.0,
    b: float | None = None,
    spread: float | None = 1.0,
    factor: Mapping[str, float] | None = None,
) -> Workload:
    """Jobs of one workload with ``a``, ``b`` samples/s per GPU, for any number of GPUs.

    ``spread`` is the share of that speed that remains when spread; None: it cannot be spread.
    """

    def table(rate: float) -> ThroughputTable:
        return ThroughputTable({1: rate}, {} if spread is None else {2: rate * spread})

    tables = {A: table(a)} | ({B: table(b)} if b is not None else {})
    factors = {NodeName(n): f for n, f in (factor or {}).items()}
    return Workload({NET: tables}, tuple(jobs), {NET: factors} if factors else {})

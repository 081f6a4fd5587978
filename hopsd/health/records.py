"""The data from which health is judged, and the verdict on a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from hopsd.model.ids import GpuType, JobId, NodeName, WorkloadName


class EndState(StrEnum):
    """How a run of a job ended. LAUNCH_FAILED means that it never began, as if a prolog failed."""

    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    NODE_FAIL = "NODE_FAIL"
    TIMEOUT = "TIMEOUT"
    LAUNCH_FAILED = "LAUNCH_FAILED"


@dataclass(frozen=True, slots=True)
class HealthNode:
    name: NodeName
    gpu_type: GpuType
    gpus: int


@dataclass(frozen=True, slots=True)
class RankTime:
    """Seconds per iteration that one rank computed, and seconds that it waited for other ranks."""

    node: NodeName
    compute: float
    wait: float


@dataclass(frozen=True, slots=True)
class SpeedRecord:
    """What a job reported at ``at`` (epoch seconds): seconds per iteration since its last report.

    ``nodes`` are its GPUs on each node; ``ranks`` is empty if it does not report them. ``gpu`` is
    the index of the job's only GPU, None if it has several or the index is unknown.
    """

    at: float
    workload: WorkloadName
    job: JobId
    nodes: Mapping[NodeName, int]
    seconds_per_iteration: float
    ranks: tuple[RankTime, ...] = ()
    gpu: int | None = None


@dataclass(frozen=True, slots=True)
class JobEnd:
    at: float
    job: JobId
    workload: WorkloadName
    nodes: Mapping[NodeName, int]
    state: EndState


@dataclass(frozen=True, slots=True)
class Stay:
    """A job's stay on ``nodes`` from ``start`` to ``end``, infinite if it is still there."""

    job: JobId
    nodes: tuple[NodeName, ...]
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class HealthRecords:
    """Everything that happened on ``nodes``; what is later than ``now`` is never read. ``stays``
    are those of all jobs on the nodes; if empty, they follow from the records, which must then be
    complete.
    """

    now: float
    nodes: tuple[HealthNode, ...]
    records: tuple[SpeedRecord, ...] = ()
    ends: tuple[JobEnd, ...] = ()
    stays: tuple[Stay, ...] = ()


@dataclass(frozen=True, slots=True)
class SlowNode:
    """A slow node. ``factor`` is its speed now over its type's, with the 95 % interval ``low`` to
    ``high``.

    ``since`` is the first record after it became slow (epoch seconds), None if it always was.
    ``gpu`` is set if only this one of the node's GPUs is slow.
    """

    node: NodeName
    factor: float
    low: float
    high: float
    since: float | None
    gpu: int | None = None


@dataclass(frozen=True, slots=True)
class SharedNode:
    """A node that is not slow, but whose jobs slow each other down. ``factor`` is their speed
    beside each other over that alone; ``since`` (epoch seconds) is when they began to run together.
    """

    node: NodeName
    factor: float
    since: float


@dataclass(frozen=True, slots=True)
class Lemon:
    """A node that breaks jobs: its failures, and how many its workloads' runs elsewhere predict.

    ``workloads`` is how many workloads failed there. ``p`` is the probability that any node has as
    many failures by chance, corrected for the number of nodes.
    """

    node: NodeName
    failures: int
    expected: float
    p: float
    workloads: int = 1


@dataclass(frozen=True, slots=True)
class Health:
    slow: tuple[SlowNode, ...]
    lemons: tuple[Lemon, ...]
    shared_nodes: tuple[SharedNode, ...] = ()

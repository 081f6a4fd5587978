"""The data from which health is judged, and the verdict on a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from hopsd.model.ids import GpuType, JobId, NodeName, WorkloadName


class EndState(StrEnum):
    """How a run of a job ended. LAUNCH_FAILED: it never began, as after a failed prolog."""

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
    """Of one rank and iteration: seconds it computed, and seconds it waited for other ranks."""

    node: NodeName
    compute: float
    wait: float


@dataclass(frozen=True, slots=True)
class SpeedRecord:
    """What a job reported at ``at``, epoch seconds: the seconds of an iteration since its last
    report. ``nodes``: its GPUs on each node; ``ranks``: empty where it does not report them.
    ``gpu``: the index of the job's only GPU, None where it has several or that is not known.
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
    """A job was on ``nodes`` from ``start`` to ``end``, infinite: it still is."""

    job: JobId
    nodes: tuple[NodeName, ...]
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class HealthRecords:
    """Everything that happened on ``nodes``; what is later than ``now`` is never read. ``stays``:
    of all jobs on them; empty: as their records show, all of which are there.
    """

    now: float
    nodes: tuple[HealthNode, ...]
    records: tuple[SpeedRecord, ...] = ()
    ends: tuple[JobEnd, ...] = ()
    stays: tuple[Stay, ...] = ()


@dataclass(frozen=True, slots=True)
class SlowNode:
    """``factor``: present speed over the type's; ``low`` to ``high``: its 95 % interval.

    ``since``: epoch seconds of the first record after it became so; None: from the beginning.
    ``gpu``: it is this one of the node's GPUs alone.
    """

    node: NodeName
    factor: float
    low: float
    high: float
    since: float | None
    gpu: int | None = None


@dataclass(frozen=True, slots=True)
class SharedNode:
    """A node that is not slow, but whose jobs are: ``factor``, their speed beside each other over
    that alone; ``since``, epoch seconds, they have run so.
    """

    node: NodeName
    factor: float
    since: float


@dataclass(frozen=True, slots=True)
class Lemon:
    """A node that breaks jobs: its failures, and how many these workloads have elsewhere.

    ``workloads``: how many of them failed there. ``p``: probability that any node would have as
    many by chance, corrected for their number.
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

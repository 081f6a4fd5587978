"""A cluster and a workload to simulate: the simulator's input files as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hopsd.model.ids import AppName, GpuType, JobId, NodeName, UserName, WorkloadName
from hopsd.model.job import ThroughputTable


@dataclass(frozen=True, slots=True)
class Server:
    """A server with ``gpus`` GPUs of one type."""

    name: NodeName
    gpu_type: GpuType
    gpus: int


@dataclass(frozen=True, slots=True)
class Links:
    """Parameters per second between GPUs of one server and between servers (eq. 2)."""

    b_link: float
    b_net: float


@dataclass(frozen=True, slots=True)
class Cluster:
    """Servers in the cluster's node order."""

    servers: tuple[Server, ...]
    links: Mapping[GpuType, Links] = field(default_factory=dict)

    @property
    def gpus(self) -> int:
        return sum(server.gpus for server in self.servers)

    def gpus_by_type(self) -> dict[GpuType, int]:
        total: dict[GpuType, int] = {}
        for server in self.servers:
            total[server.gpu_type] = total.get(server.gpu_type, 0) + server.gpus
        return total


@dataclass(frozen=True, slots=True)
class WorkloadJob:
    """A job submitted at ``submit`` seconds of virtual time, with ``samples`` to train in total.

    ``cpu``: it may also run on CPUs. ``app``, ``phase``: as in a comment; jobs of a phase wait
    until those of earlier phases have ended. ``time_limit_seconds``: None: not known.
    ``restart_seconds``: what each start but the first takes; None: as the settings say.
    """

    id: JobId
    user: UserName
    submit: float
    workload: WorkloadName
    samples: float
    reqs: tuple[int, ...]
    batch_size: int | None = None
    preemptible: bool = True
    cpu: bool = False
    app: AppName | None = None
    phase: int = 0
    time_limit_seconds: float | None = None
    restart_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """``throughput`` by workload name and GPU type; ``server_factor`` by workload and server."""

    throughput: Mapping[WorkloadName, Mapping[GpuType, ThroughputTable]]
    jobs: tuple[WorkloadJob, ...]
    server_factor: Mapping[WorkloadName, Mapping[NodeName, float]] = field(default_factory=dict)

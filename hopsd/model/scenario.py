"""A cluster and a workload to simulate: the simulator's input files as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hopsd.model.ids import AppName, GpuType, JobId, NodeName, UserName, WorkloadName
from hopsd.model.job import ThroughputTable
from hopsd.model.rules import ShapeRule
from hopsd.model.script_options import NO_OPTIONS, ScriptOptions


@dataclass(frozen=True, slots=True)
class Server:
    """A server with ``gpus`` GPUs of one type, below ``switches`` as in :class:`Node`."""

    name: NodeName
    gpu_type: GpuType
    gpus: int
    switches: tuple[str, ...] = ()

    @property
    def leaf(self) -> str:
        """The server's leaf switch, block or rack; servers without one share the leaf ""."""
        return self.switches[-1] if self.switches else ""


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

    ``cpu``: the job may also run on CPUs. ``app``, ``phase``: as in a comment; jobs of a phase wait
    until those of earlier phases have ended. ``time_limit_seconds``: None if unknown.
    ``restart_seconds``: the time that each start but the first takes, None for the one in the
    settings. ``segment``, ``max_switches``: as in :class:`hopsd.model.rules.Rules`; with either,
    all servers of the job provide the same number of GPUs, ``per_node`` if given. ``interactive``:
    whether the job is an interactive session.
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
    segment: int | None = None
    max_switches: int | None = None
    per_node: int | None = None
    interactive: bool = False

    @property
    def options(self) -> ScriptOptions:
        """The sbatch options of the job."""
        if self.segment is None and self.max_switches is None and self.per_node is None:
            return NO_OPTIONS
        return ScriptOptions(
            shape=ShapeRule.EVEN,
            per_node=self.per_node,
            switches=self.max_switches,
            segment=self.segment,
        )


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs to simulate, and their speeds.

    ``throughput``: by workload name and GPU type; ``server_factor``: by workload and server;
    ``across``: by workload, factors by the number of leaf switches.
    """

    throughput: Mapping[WorkloadName, Mapping[GpuType, ThroughputTable]]
    jobs: tuple[WorkloadJob, ...]
    server_factor: Mapping[WorkloadName, Mapping[NodeName, float]] = field(default_factory=dict)
    across: Mapping[WorkloadName, Mapping[int, float]] = field(default_factory=dict)

"""What is known about how fast workloads run (section 3.3 of the paper)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hopsd.model.ids import GpuType, JobId, NodeName, UserName, WorkloadName
from hopsd.model.job import ThroughputTable

NOBODY = UserName("")
"""The user of a report whose job's owner is unknown."""

UNKNOWN_JOB = JobId("")


@dataclass(frozen=True, slots=True)
class ThroughputRecord:
    """Measured samples per second per GPU of one run in one shape.

    ``node``: where the speed was measured; ``gpus`` and ``nodes`` describe the whole allocation.
    There is one record per report; every record of a server also counts for its GPU type. ``user``:
    the owner of the job, "" in records from before owners were stored. ``batch``: samples of an
    iteration per GPU, 0 if unknown. ``leaves``: the number of leaf switches, blocks or racks of the
    run's nodes. ``job``: "" if unknown. ``gpu``: the index of the job's only GPU, None if it had
    several or Slurm did not report it.
    """

    workload: WorkloadName
    gpu_type: GpuType
    node: NodeName
    gpus: int
    nodes: int
    per_gpu: float
    at: float
    user: UserName = NOBODY
    batch: float = 0.0
    leaves: int = 1
    job: JobId = UNKNOWN_JOB
    gpu: int | None = None


@dataclass(frozen=True, slots=True)
class Phases:
    """Phase times of the iterations of one process, in seconds, as means since its start.

    ``data_bins``: histogram of the time that each of the ``iterations`` waited for data (bins as
    in ``core/speed/mixture.py``), ``data_seconds`` in total. ``backward_by_data``: seconds in
    backward passes, by the same bins, measured with the CPU's clock; ``t_w`` is the part of a
    backward pass spent waiting for slower peers, ``t_b`` the rest. ``batch_size``: mean samples per
    iteration, ``params``: parameters of the model; each is 0 if it could not be determined.
    ``on_device``: t_f, t_b, t_u and t_w were measured with a GPU's clock.
    """

    inference: bool
    on_device: bool
    pattern: int
    batch_size: float
    params: float
    t_f: float
    t_b: float
    t_u: float
    t_w: float
    iterations: int
    data_seconds: float
    data_bins: Mapping[int, int]
    backward_by_data: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PhaseRecord:
    """The phase times that one process of run ``run`` of a job last reported.

    ``world``: ranks of the run; ``at``: epoch seconds of the report.
    """

    workload: WorkloadName
    gpu_type: GpuType
    job: JobId
    run: int
    node: NodeName
    rank: int
    pid: int
    world: int
    at: float
    phases: Phases
    user: UserName = NOBODY


@dataclass(frozen=True, slots=True)
class Theory:
    """The theory layer of a workload on a GPU type: basic times, fitted to ``records`` reports.

    Times are seconds per phase of one iteration on one GPU (section 3.5). Data comes from memory
    with probability ``p_cache`` after about ``mu_cache``, else from storage after ``mu_load``;
    ``w_cache`` and ``w_load`` are the waits for peers in the two cases. ``params`` is 0 if unknown.
    ``iterations``: how many the data times are based on; ``at``: time of the newest report.
    """

    workload: WorkloadName
    gpu_type: GpuType
    inference: bool
    pattern: int
    batch_size: float
    params: float
    t_f: float
    t_b: float
    t_u: float
    p_cache: float
    mu_cache: float
    sigma_cache: float
    mu_load: float
    sigma_load: float
    w_cache: float
    w_load: float
    records: int
    iterations: int
    at: float


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """The calibrated bandwidths of a GPU type, in parameters per second (eq. 2).

    ``b_link``: between the GPUs of one server; ``b_net``: between servers; ``b_across``: between
    servers of different leaf switches, 0 if unknown. ``at``: epoch seconds of the measurement, 0 if
    the bandwidths are from the configuration.
    """

    gpu_type: GpuType
    b_link: float
    b_net: float
    at: float = 0.0
    b_across: float = 0.0


@dataclass(frozen=True, slots=True)
class PastRun:
    """A job that has ended, successfully or not, with its totals over all restarts.

    ``name``: the name of the job. ``samples``: as last reported, 0 if it reported none.
    """

    user: UserName
    account: str
    name: str
    workload: WorkloadName
    seconds: float
    gpu_seconds: float
    samples: float
    end: float


@dataclass(frozen=True, slots=True)
class Shortage:
    """A user's workload ran out of the memory of a GPU type, with ``gpus`` GPUs at most.

    ``at``: epoch seconds of the last time.
    """

    user: UserName
    workload: WorkloadName
    gpu_type: GpuType
    gpus: int
    at: float


@dataclass(frozen=True, slots=True)
class Knowledge:
    """Everything known about workloads' speed and run time.

    ``tables``: the operator's tables from the configuration, which override everything else. Two
    kinds of factors belong to them: ``server_factor`` multiplies the per-GPU throughput on a
    server, ``across`` that on a number of leaf switches. ``records``: speeds that jobs reported.

    ``runs``: past runs of the users and accounts that have jobs present, oldest first.

    ``ended_by_signal``: users' workloads of which a job ended in the grace of hops' own signal.
    ``failed_again``: users' workloads of which a job failed soon after a restart.

    ``theory``: basic times by workload and type, where measured. ``bandwidth``: of calibrated
    types; ``implied``: of other types, as implied by measured shapes. ``shortages``: types whose
    memory was too small. ``type_speed``: the speed of a GPU of a type relative to other types, from
    workloads measured on several; types that cannot be compared are missing.
    """

    tables: Mapping[WorkloadName, Mapping[GpuType, ThroughputTable]] = field(default_factory=dict)
    server_factor: Mapping[WorkloadName, Mapping[NodeName, float]] = field(default_factory=dict)
    across: Mapping[WorkloadName, Mapping[int, float]] = field(default_factory=dict)
    records: tuple[ThroughputRecord, ...] = ()
    runs: tuple[PastRun, ...] = ()
    ended_by_signal: frozenset[tuple[UserName, WorkloadName]] = frozenset()
    failed_again: frozenset[tuple[UserName, WorkloadName]] = frozenset()
    theory: tuple[Theory, ...] = ()
    bandwidth: tuple[Bandwidth, ...] = ()
    implied: tuple[Bandwidth, ...] = ()
    shortages: tuple[Shortage, ...] = ()
    type_speed: Mapping[GpuType, float] = field(default_factory=dict)

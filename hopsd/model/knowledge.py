"""What is known about how fast workloads run (section 3.3 of the paper)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hopsd.model.ids import GpuType, JobId, NodeName, UserName, WorkloadName
from hopsd.model.job import ThroughputTable

NOBODY = UserName("")
"""Whose job a report was of is not known."""


@dataclass(frozen=True, slots=True)
class ThroughputRecord:
    """Measured samples per second per GPU of one run in one shape.

    ``node`` is the one the figure belongs to; ``gpus`` and ``nodes`` describe the whole
    allocation. One record a report; every entity record also counts for its type. ``user``: whose
    job reported it, "" of records from before that was kept.
    """

    workload: WorkloadName
    gpu_type: GpuType
    node: NodeName
    gpus: int
    nodes: int
    per_gpu: float
    at: float
    user: UserName = NOBODY


@dataclass(frozen=True, slots=True)
class Phases:
    """What one process measured of its iterations' parts: seconds, means since its start.

    ``data_bins``: how many of the ``iterations`` waited for data for a time of that bin
    (``core/speed/mixture.py`` says what times those are), ``data_seconds`` in all.
    ``backward_by_data``: seconds in backward passes by that bin, by the CPU's clock; ``t_w`` is
    the part of a backward pass that waited for slower peers, ``t_b`` the rest of it.
    ``batch_size``: mean samples of an iteration, 0 where they could not be seen.
    ``on_device``: t_f, t_b, t_u and t_w are by a GPU's clock. ``params`` 0: could not be seen.
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
    """The parts of an iteration as one process of run ``run`` of a job last reported them.

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

    Seconds of one iteration's parts on one GPU (section 3.5). Data comes from memory with
    ``p_cache`` after about ``mu_cache``, else from storage after ``mu_load``; ``w_cache`` and
    ``w_load`` are the waits for peers in the two cases. ``params`` 0: not known.
    ``iterations``: how many the data times rest on; ``at``: the newest report.
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
    """What calibration found of a GPU type, in parameters per second (eq. 2).

    ``b_link`` between the GPUs of one server, ``b_net`` between servers. ``at``: epoch
    seconds of the measurement, 0 where the configuration gives it.
    """

    gpu_type: GpuType
    b_link: float
    b_net: float
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Knowledge:
    """``tables``: the operator's, from the configuration, final. ``records``: what jobs reported.

    ``server_factor`` goes with ``tables``: it multiplies the per-GPU throughput on a server.

    ``median_age_by_workload``, ``median_age_by_user``: seconds that completed jobs ran, the
    expected run time of a job that names neither samples nor a time limit.

    ``theory``: basic times of workloads on types where they were measured; ``bandwidth``: of
    calibrated types.
    """

    tables: Mapping[WorkloadName, Mapping[GpuType, ThroughputTable]] = field(default_factory=dict)
    server_factor: Mapping[WorkloadName, Mapping[NodeName, float]] = field(default_factory=dict)
    records: tuple[ThroughputRecord, ...] = ()
    median_age_by_workload: Mapping[WorkloadName, float] = field(default_factory=dict)
    median_age_by_user: Mapping[UserName, float] = field(default_factory=dict)
    theory: tuple[Theory, ...] = ()
    bandwidth: tuple[Bandwidth, ...] = ()

"""A job's throughput: table look-ups (section 3.3) and the model of one iteration (3.5)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from math import log, sqrt

from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, NodeName
from hopsd.model.job import Job, ThroughputTable


def interpolate(by_count: Mapping[int, float], count: int) -> float:
    """Interpolate linearly between counts, with the nearest one outside; 0 for an empty table."""
    if count in by_count:
        return by_count[count]
    counts = sorted(by_count)
    if not counts:
        return 0.0
    index = bisect_left(counts, count)
    if index in (0, len(counts)):
        return by_count[counts[min(index, len(counts) - 1)]]
    low, high = counts[index - 1], counts[index]
    share = (count - low) / (high - low)
    return by_count[low] + share * (by_count[high] - by_count[low])


def per_gpu(table: ThroughputTable, gpus: int, nodes: int) -> float:
    """Return samples per second per GPU for ``gpus`` GPUs on ``nodes`` servers.

    Server factors are not included. This is the estimate for the shape, if the table has estimates
    by shape. Otherwise it depends on the GPU count in one server, and only on the server count over
    several. It is 0 if the table has no such placement.
    """
    if table.by_shape is not None:
        return table.by_shape.per_gpu(gpus, nodes)
    if nodes > 1:
        return interpolate(table.distributed, nodes)
    return interpolate(table.aggregated, gpus)


def single_gpu(job: Job, gpu_type: GpuType) -> float:
    """Return samples per second of a single GPU of this type; 0 if the job cannot run on it."""
    table = job.throughput.get(gpu_type)
    return per_gpu(table, 1, 1) if table is not None else 0.0


def across_leaves(job: Job, leaves: int) -> float:
    """Return the factor on the job's throughput if it spans ``leaves`` leaf switches."""
    return interpolate(job.across, leaves) if job.across else 1.0


def configuration_throughput(
    job: Job,
    allocation: Allocation,
    node_types: Mapping[NodeName, GpuType],
    leaf_of: Mapping[NodeName, str] | None = None,
) -> float:
    """Return samples per second of the whole job: its slowest server's per-GPU rate times all GPUs.

    The result is 0 for no allocation, and if a server's type or the spread shape is not in the
    tables. ``leaf_of``: each node's leaf switch; without it, all nodes are on the same one.
    """
    rates = []
    gpus, nodes = allocation.gpus, len(allocation.parts)
    for node, _ in allocation.parts:
        table = job.throughput.get(node_types[node])
        rate = per_gpu(table, gpus, nodes) if table is not None else 0.0
        rates.append(rate * job.factor_on(node, gpus, nodes))
    leaves = 1 if leaf_of is None else len({leaf_of.get(node, "") for node in allocation.nodes})
    return min(rates, default=0.0) * gpus * across_leaves(job, leaves)


class Pattern(IntEnum):
    """The pattern of eq. 1: data loading overlaps with backward and update (1), or not (2)."""

    OVERLAPPED = 1
    SERIAL = 2


@dataclass(frozen=True, slots=True)
class DataTime:
    """Seconds to load one batch: from memory with ``p_cache``, else from storage (eq. 3)."""

    p_cache: float
    mu_cache: float
    sigma_cache: float
    mu_load: float = 0.0
    sigma_load: float = 0.0


@dataclass(frozen=True, slots=True)
class PeerWait:
    """Mean seconds spent waiting for the slowest peer, in the two cases of :class:`DataTime`."""

    cache: float = 0.0
    load: float = 0.0


@dataclass(frozen=True, slots=True)
class BasicTimes:
    """Seconds of the parts of one iteration on one GPU type (eq. 1 to 5).

    ``params``: parameters of the model; ``b_link``, ``b_net``: parameters per second between
    GPUs of one server and between servers; ``batch_size``: samples per GPU.
    """

    batch_size: float
    params: float
    pattern: Pattern
    t_f: float
    t_b: float
    t_u: float
    t_d: DataTime
    b_link: float
    b_net: float
    t_w: PeerWait = field(default_factory=PeerWait)


class Communication(StrEnum):
    """Models of the time for gradients to travel between servers, given ``b_net``.

    ``PAPER``: eq. 2, regardless of the shape. ``RING``: all-reduce sends 2 (N - 1) / N of the
    gradients, and has more paths with more servers: the time is proportional to 1 / sqrt(K) for K
    servers. ``SWITCHED``: the same ring through a switch, where paths do not grow without bound: a
    factor of ``MORE_SERVERS`` from three servers on, and (N / K) ** ``SHARED_NETWORK`` since the
    GPUs of a server share its network; all N GPUs wait for the slowest. Except for this wait, all
    three models agree for two GPUs on two servers. docs/estimator.md has the evidence.
    """

    PAPER = "paper"
    RING = "ring"
    SWITCHED = "switched"


MORE_SERVERS = 2 / 3
SHARED_NETWORK = 0.1
STRAGGLER_FACTOR = 0.06
"""The wait for the slowest GPU as a share of compute time, per factor e of GPUs, if no wait was
measured. These three constants were fitted to six applications (docs/estimator.md)."""


@dataclass(frozen=True, slots=True)
class IterationModel:
    """How the parts of an iteration add up.

    ``exposed_share``: the part of communication that never overlaps with backward.
    ``paper_exact``: pattern 2 leaves out the time of the update, as printed in the paper. By
    default the time counts, since an update that overlaps with nothing takes time.
    """

    exposed_share: float = 0.2
    paper_exact: bool = False
    communication: Communication = Communication.PAPER


def communication_seconds(
    times: BasicTimes, gpus: int, nodes: int, model: IterationModel | None = None
) -> float:
    """Return T_c (eq. 2): a ring within one server, the network between servers."""
    if nodes == 1:
        return times.params / times.b_link * (gpus - 1) / gpus
    form = model.communication if model is not None else Communication.PAPER
    return times.params / times.b_net * _relative(gpus, nodes, form)


def _relative(gpus: int, nodes: int, form: Communication) -> float:
    """Return T_c over several servers, relative to two GPUs on two servers."""
    if form is Communication.PAPER:
        return 1.0
    ring = 2 * (gpus - 1) / gpus
    if form is Communication.RING:
        return ring * sqrt(2 / nodes)
    paths = MORE_SERVERS if nodes > 2 else 1.0
    return ring * paths * float((gpus / nodes) ** SHARED_NETWORK)


def iteration_seconds(
    times: BasicTimes, gpus: int, nodes: int, model: IterationModel | None = None
) -> float:
    """Return E(T_iter): expected iteration time over data from memory and from storage (eq. 5)."""
    model = model or IterationModel()
    data, wait = times.t_d, times.t_w
    t_c = communication_seconds(times, gpus, nodes, model)
    if model.communication is Communication.SWITCHED:
        wait = _expected_wait(times, gpus)
    seconds = data.p_cache * _seconds(times, t_c, data.mu_cache, wait.cache, model)
    if data.p_cache < 1.0:
        seconds += (1.0 - data.p_cache) * _seconds(times, t_c, data.mu_load, wait.load, model)
    return seconds


def _expected_wait(times: BasicTimes, gpus: int) -> PeerWait:
    """Return the measured wait, or else the expected wait for the slowest of ``gpus`` GPUs."""
    if gpus == 1 or not times.params or times.t_w.cache or times.t_w.load:
        return times.t_w
    slowest = STRAGGLER_FACTOR * log(gpus) * (times.t_f + times.t_b + times.t_u)
    return PeerWait(slowest, slowest)


def _seconds(times: BasicTimes, t_c: float, t_d: float, t_w: float, model: IterationModel) -> float:
    backward = max(times.t_b + model.exposed_share * t_c, t_c)
    if times.pattern is Pattern.OVERLAPPED:
        return max(t_d, backward + times.t_u) + times.t_f + t_w
    update = 0.0 if model.paper_exact else times.t_u
    return t_d + backward + update + times.t_f + t_w


def theory_per_gpu(
    times: BasicTimes, gpus: int, nodes: int, model: IterationModel | None = None
) -> float:
    """Return samples per second per GPU: batch size over E(T_iter)."""
    return times.batch_size / iteration_seconds(times, gpus, nodes, model)


def theory_table(times: BasicTimes, gpus_max: int) -> ThroughputTable:
    """Return the model's throughput table for servers of up to ``gpus_max`` GPUs.

    Eq. 2 does not depend on the number of servers, so one spread entry stands for all.
    """
    rates = {n: theory_per_gpu(times, n, 1) for n in range(1, gpus_max + 1)}
    return ThroughputTable(rates, {2: theory_per_gpu(times, 2, 2)}, "theory")

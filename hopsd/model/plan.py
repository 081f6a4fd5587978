"""The input and the output of a policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.model.job import Job, Node
from hopsd.model.reason import Reason
from hopsd.model.rules import Limit


class PriorityName(StrEnum):
    """The queue orders to choose from (section 3.6 and figure 13 of the paper).

    The last four consider a site's accounting: they order by the latency ratio times Slurm's
    fair-share factor or the weight of the QOS, or by the factor first and the ratio to break ties.
    """

    LATENCY_RATIO = "latency_ratio"
    FIFO = "fifo"
    SJF = "sjf"
    SRTF = "srtf"
    LAS = "las"
    FTF = "ftf"
    FAIR_SHARE = "fair_share"
    FAIR_SHARE_FIRST = "fair_share_first"
    QOS = "qos"
    QOS_FIRST = "qos_first"


FTF_LAMBDA = 2.0
"""The lambda that the paper found best for finish-time fairness (section 4.4)."""


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """The operator's settings for one plan. ``time_limit_seconds`` bounds the whole planning.

    For Themis and its rivals, ``filter_share`` is f, the share of apps left out of an auction, and
    GPUs are offered again after ``lease_seconds``.

    ``effort``: how many passes of proof and wider search may follow a first solution that misses
    the gap, each with four times the work of the previous one; None for as many as it takes to meet
    the gap or run out of time. With a number, and enough time, a plan does not depend on the clock.
    ``alpha``: share of the users, those with the least progress, whose jobs AlloX considers.
    ``patience_seconds``: waiting time after which AlloX+ serves a job before shorter ones.
    ``overdue_ratio``: latency ratio above which a job goes before fair share and QOS.
    ``tail_weight``: weight that ``hops+`` gives the job that will end last.
    """

    lam: float = 1.0
    sigma: float = 1.4
    gap: float = 0.01
    time_limit_seconds: float = 10.0
    priority: PriorityName = PriorityName.LATENCY_RATIO
    policy: str = "hops"
    paper_exact: bool = False
    seed: int = 0
    filter_share: float = 0.8
    lease_seconds: float = 600.0
    effort: int | None = None
    alpha: float = 0.1
    patience_seconds: float = 3600.0
    overdue_ratio: float = 10.0
    tail_weight: float = 0.0


@dataclass(frozen=True, slots=True)
class RoundInfo:
    """A plan's place in its round, and the round's length in ``seconds``.

    ``first``: in a round's first plan, GPUs of running jobs count as idle unless the jobs are
    pinned; in further plans, only GPUs that are idle now do.
    """

    first: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole input of a policy. The order of ``nodes`` is the cluster's node order.

    ``limits`` may refer to jobs that are not in ``jobs``.
    """

    now: float
    round: RoundInfo
    nodes: tuple[Node, ...]
    jobs: tuple[Job, ...]
    limits: tuple[Limit, ...] = ()


class PlanStatus(StrEnum):
    OPTIMAL = "optimal"
    WITHIN_GAP = "within_gap"
    TIME_LIMIT = "time_limit"
    FALLBACK = "fallback"


@dataclass(frozen=True, slots=True)
class JobNumbers:
    """The figures behind a job's place in a plan, shown by ``hopsctl explain``.

    ``gain`` (G of eq. 11) and ``throughput`` (samples/s of the whole job) are those of the chosen
    configuration, None if the job has none. ``between``: the 80 % interval of the throughput, None
    if unknown.
    """

    priority: float
    sensitivity: float | None
    gain: float | None
    throughput: float | None
    source: str | None
    between: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The output of a policy.

    ``placements``: new allocations, without jobs that merely keep theirs. ``objective``: eq. 11
    over the chosen configurations; ``upper_bound``: a proven bound on it; ``window``: the service
    window in queue order; ``adjusted``: the jobs that the sensitivity adjustment added to the
    window. ``fragments``: GPUs left idle while jobs wait; ``rack_fragments``: whole racks' worth of
    idle GPUs on racks where no waiting rack-bound job could use them.
    """

    placements: Mapping[JobId, Allocation]
    objective: float = 0.0
    upper_bound: float = 0.0
    gap: float = 0.0
    status: PlanStatus = PlanStatus.OPTIMAL
    window: tuple[JobId, ...] = ()
    adjusted: tuple[JobId, ...] = ()
    fragments: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    configurations: int = 0
    waiting: Mapping[JobId, Reason] = field(default_factory=dict)
    jobs: Mapping[JobId, JobNumbers] = field(default_factory=dict)
    rack_fragments: int = 0

"""A site's own rules, as configured in Slurm's accounting and partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hopsd.model.ids import JobId, UserName

AccountName = str
QosName = str
PartitionName = str
AssociationKey = tuple[AccountName, UserName, PartitionName]


class ResourceKind(StrEnum):
    """The resource that a bound limits (see :func:`kind_of_type` for GPUs of one type).

    ``GPU_MINUTES`` and ``CPU_MINUTES`` are total usage (GrpTRESMins), the ``RUNNING_`` ones the
    remaining minutes of running jobs (GrpTRESRunMins); ``WALL_MINUTES``: GrpWall.
    """

    GPUS = "GPUs"
    CPUS = "CPUs"
    MEMORY = "MB of memory"
    NODES = "nodes"
    BILLING = "billing units"
    JOBS = "jobs"
    GPU_MINUTES = "GPU minutes"
    CPU_MINUTES = "CPU minutes"
    RUNNING_GPU_MINUTES = "GPU minutes to run"
    RUNNING_CPU_MINUTES = "CPU minutes to run"
    WALL_MINUTES = "minutes of run time"


def kind_of_type(gpu_type: str) -> str:
    """Return the kind for GPUs of one type. Slurm counts them for jobs that request the type."""
    return f"GPUs of type {gpu_type}"


Bounds = Mapping[str, int]
"""Upper bounds by kind of resource; a missing kind has no bound."""


@dataclass(frozen=True, slots=True)
class Association:
    """An account (``user`` "") or a user in it; with ``partition``, only for jobs in that one.

    ``parent``: the parent account, "" if none. ``group``: bounds on all jobs below the association
    together, at any one time (minutes: in total); ``usage``: minutes used so far. ``per_job``:
    bounds per job; ``per_node``: bounds per job and node; ``seconds``: the longest time limit, None
    if unlimited. ``jobs``: bound on the user's running jobs here. ``share``: Slurm's fair-share
    factor from 0 to 1, which is larger if less than the fair share was used.
    """

    account: AccountName
    user: UserName
    partition: PartitionName = ""
    parent: AccountName = ""
    group: Bounds = field(default_factory=dict)
    usage: Bounds = field(default_factory=dict)
    per_job: Bounds = field(default_factory=dict)
    per_node: Bounds = field(default_factory=dict)
    seconds: float | None = None
    jobs: int | None = None
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Qos:
    """A quality of service with its bounds.

    ``group``, ``per_user``, ``per_account``: bounds on the QOS's jobs together, at any one time
    (minutes: in total). ``least``: lower bounds per job. ``over_partition``: the bounds override
    those of a partition's QOS.
    """

    name: QosName
    group: Bounds = field(default_factory=dict)
    usage: Bounds = field(default_factory=dict)
    per_user: Bounds = field(default_factory=dict)
    per_account: Bounds = field(default_factory=dict)
    per_job: Bounds = field(default_factory=dict)
    per_node: Bounds = field(default_factory=dict)
    least: Bounds = field(default_factory=dict)
    seconds: float | None = None
    over_partition: bool = False
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition, and the ``accounts`` and ``qos`` that may use it (None: all not denied).

    ``nodes``: the maximum for one job. ``billing``: weights by kind; if empty, Slurm bills CPUs.
    ``tier``: jobs of a higher tier come first; ``gives_way``: whether running jobs may be preempted
    for them.
    """

    name: PartitionName
    accounts: frozenset[AccountName] | None = None
    denied_accounts: frozenset[AccountName] = frozenset()
    qos: frozenset[QosName] | None = None
    denied_qos: frozenset[QosName] = frozenset()
    own_qos: QosName = ""
    seconds: float | None = None
    nodes: int | None = None
    billing: Mapping[str, float] = field(default_factory=dict)
    tier: int = 1
    gives_way: bool = True


@dataclass(frozen=True, slots=True)
class SiteRules:
    """All rules of a site; ``associations`` are by account, user and partition.

    ``has_limits``: Slurm enforces the limits of associations and QOS; ``safe``: Slurm starts a job
    only if the remaining minutes last to its end. ``billing_is_largest``: a job is billed for its
    most expensive resource, not for the sum.
    """

    has_limits: bool = False
    safe: bool = False
    billing_is_largest: bool = False
    associations: Mapping[AssociationKey, Association] = field(default_factory=dict)
    qos: Mapping[QosName, Qos] = field(default_factory=dict)
    partitions: Mapping[PartitionName, Partition] = field(default_factory=dict)


NO_RULES = SiteRules()


@dataclass(frozen=True, slots=True)
class Holder:
    """A job not managed by hops that holds GPUs or CPUs now; ``tres``: its other resources."""

    id: JobId
    user: UserName
    account: AccountName
    qos: QosName
    partition: PartitionName
    gpus: int
    cpus: int
    tres: Bounds = field(default_factory=dict)
    time_limit_seconds: float | None = None
    start: float = 0.0


@dataclass(frozen=True, slots=True)
class Licence:
    """A licence's counts: ``total``, and ``in_use`` by all jobs, including hops jobs."""

    total: int
    in_use: int

"""A site's own rules, as Slurm's accounting and partitions have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hopsd.model.ids import JobId, UserName

AccountName = str
QosName = str
PartitionName = str
AssociationKey = tuple[AccountName, UserName, PartitionName]


class Kind(StrEnum):
    """What a bound is about; GPUs of one type are :func:`typed`.

    ``GPU_MINUTES`` and ``CPU_MINUTES`` are of all time (GrpTRESMins), the running ones those that
    jobs now running have before them (GrpTRESRunMins); ``WALL_MINUTES``: GrpWall.
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


def typed(gpu_type: str) -> str:
    """The kind of GPUs of one type. Slurm counts them for jobs that name the type."""
    return f"GPUs of type {gpu_type}"


Bounds = Mapping[str, int]
"""At most so much of each kind; a kind that is absent has no bound."""


@dataclass(frozen=True, slots=True)
class Association:
    """An account (``user`` ""), or a user in it, in ``partition`` alone where one is named.
    ``parent``: the account above, "": none.

    ``group``: what all jobs below it may have at one time, minutes in all; ``used``: minutes that
    they had so far. ``each``: of one job, ``per_node``: of one job on a node; ``seconds``: its
    longest time limit, None: no bound. ``jobs``: running jobs of this user here. ``share``: Slurm's
    fair-share factor, 0 to 1, larger for who had less than its share.
    """

    account: AccountName
    user: UserName
    partition: PartitionName = ""
    parent: AccountName = ""
    group: Bounds = field(default_factory=dict)
    used: Bounds = field(default_factory=dict)
    each: Bounds = field(default_factory=dict)
    per_node: Bounds = field(default_factory=dict)
    seconds: float | None = None
    jobs: int | None = None
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Qos:
    """``group``, ``per_user``, ``per_account``: what jobs in it may have at one time, minutes in
    all. ``least``: of one job at the least. ``over_partition``: its bounds come before those of a
    partition's QOS.
    """

    name: QosName
    group: Bounds = field(default_factory=dict)
    used: Bounds = field(default_factory=dict)
    per_user: Bounds = field(default_factory=dict)
    per_account: Bounds = field(default_factory=dict)
    each: Bounds = field(default_factory=dict)
    per_node: Bounds = field(default_factory=dict)
    least: Bounds = field(default_factory=dict)
    seconds: float | None = None
    over_partition: bool = False
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Partition:
    """``accounts`` and ``qos`` that may use it, None: all but the denied ones. ``nodes``: of one
    job at most. ``billing``: units for each of a kind; empty: Slurm bills CPUs. ``tier``: jobs of
    a higher one come first; ``gives_way``: whether running jobs leave for them.
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
    """``associations`` by account, user and partition. ``limited``: whether Slurm enforces what
    associations and QOS say; ``safe``: whether it also keeps minutes for what runs.
    ``billing_is_largest``: a job is billed for the largest part, not the sum.
    """

    limited: bool = False
    safe: bool = False
    billing_is_largest: bool = False
    associations: Mapping[AssociationKey, Association] = field(default_factory=dict)
    qos: Mapping[QosName, Qos] = field(default_factory=dict)
    partitions: Mapping[PartitionName, Partition] = field(default_factory=dict)


NO_RULES = SiteRules()


@dataclass(frozen=True, slots=True)
class Holder:
    """A job that is none of ours and holds GPUs or CPUs now; ``tres``: what else it holds."""

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
    """``used`` by all jobs, ours among them."""

    total: int
    used: int

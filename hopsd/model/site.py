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
    """What a bound is about."""

    GPUS = "GPUs"
    CPUS = "CPUs"
    JOBS = "jobs"
    NODES = "nodes"
    GPU_MINUTES = "GPU minutes"


Bounds = Mapping[Kind, int]
"""At most so much of each kind; a kind that is absent has no bound."""


@dataclass(frozen=True, slots=True)
class Association:
    """An account (``user`` ""), or a user in it, in ``partition`` alone where one is named.
    ``parent``: the account above, "": none.

    ``group``: what all jobs below it may have at one time, GPU minutes in all; ``gpu_minutes``:
    those that they had so far. ``each``: of one job; ``seconds``: its longest time limit, None: no
    bound. ``jobs``: running jobs of this user here. ``share``: Slurm's fair-share factor, 0 to 1,
    larger for who had less than its share.
    """

    account: AccountName
    user: UserName
    partition: PartitionName = ""
    parent: AccountName = ""
    group: Bounds = field(default_factory=dict)
    gpu_minutes: int = 0
    each: Bounds = field(default_factory=dict)
    gpus_per_node: int | None = None
    seconds: float | None = None
    jobs: int | None = None
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Qos:
    """``group``, ``per_user``, ``per_account``: what jobs in it may have at one time, GPU minutes
    in all. ``over_partition``: its bounds come before those of a partition's QOS.
    """

    name: QosName
    group: Bounds = field(default_factory=dict)
    gpu_minutes: int = 0
    per_user: Bounds = field(default_factory=dict)
    per_account: Bounds = field(default_factory=dict)
    each: Bounds = field(default_factory=dict)
    gpus_per_node: int | None = None
    seconds: float | None = None
    over_partition: bool = False
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Partition:
    """``accounts`` and ``qos`` that may use it, None: all but the denied ones."""

    name: PartitionName
    accounts: frozenset[AccountName] | None = None
    denied_accounts: frozenset[AccountName] = frozenset()
    qos: frozenset[QosName] | None = None
    denied_qos: frozenset[QosName] = frozenset()
    own_qos: QosName = ""
    seconds: float | None = None
    nodes: int | None = None


@dataclass(frozen=True, slots=True)
class SiteRules:
    """``associations`` by account, user and partition. ``limited``: whether Slurm enforces what
    associations and QOS say; ``safe``: whether it also keeps GPU minutes for what runs.
    """

    limited: bool = False
    safe: bool = False
    associations: Mapping[AssociationKey, Association] = field(default_factory=dict)
    qos: Mapping[QosName, Qos] = field(default_factory=dict)
    partitions: Mapping[PartitionName, Partition] = field(default_factory=dict)


NO_RULES = SiteRules()


@dataclass(frozen=True, slots=True)
class Holder:
    """A job that is none of ours and holds GPUs or CPUs now."""

    id: JobId
    user: UserName
    account: AccountName
    qos: QosName
    partition: PartitionName
    gpus: int
    cpus: int

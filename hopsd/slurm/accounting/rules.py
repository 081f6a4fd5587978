"""Reads the site's rules as slurmctld enforces them, from `scontrol show assoc_mgr`.

slurmctld keeps associations, QOS and their usage in memory, so slurmdbd need not be asked; only the
flags of a QOS are missing there. Only administrators can influence the output.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import inf

import structlog

from hopsd.errors import SlurmError, SlurmUnavailableError
from hopsd.model.ids import UserName
from hopsd.model.isolation import describe_error
from hopsd.model.reading import JobReading
from hopsd.model.site import NO_RULES, Association, Bounds, Partition, Qos, ResourceKind, SiteRules
from hopsd.slurm.command import Runner, SlurmCommands
from hopsd.slurm.parse import kind_of, records

log = structlog.get_logger()

_MINUTES = {
    ResourceKind.GPUS: ResourceKind.GPU_MINUTES,
    ResourceKind.CPUS: ResourceKind.CPU_MINUTES,
}
_TO_RUN = {
    ResourceKind.GPUS: ResourceKind.RUNNING_GPU_MINUTES,
    ResourceKind.CPUS: ResourceKind.RUNNING_CPU_MINUTES,
}
_TRES = re.compile(r"([\w/:.-]+)=(N|\d+)(?:\((\d+)\))?")
_FIELD = re.compile(r"([\w/]+)=(\S*)")
_SHARES = "SharesRaw/Norm/Level/Factor"


class SiteRulesReader:
    """Reads the rules with three short commands, which take at most ``share`` of the time.

    Slurm reports a user's limits in a QOS only once the user has jobs in it. So the rules are read
    again when a user's first job there appears, and often on a site where reading is quick.
    """

    def __init__(
        self,
        commands: SlurmCommands,
        share: float = 0.05,
        clock: Callable[[], float] = time.monotonic,
        slurmdbd: Runner | None = None,
    ) -> None:
        """``slurmdbd`` runs the commands that query slurmdbd; if None, ``commands`` does."""
        self._commands = commands
        self._slurmdbd = slurmdbd or commands
        self._overriding_qos: set[str] = set()
        self._share = share
        self._clock = clock
        self._good_until = -inf
        self._rules = NO_RULES
        self._known_subjects: set[tuple[str, str, UserName, str]] = set()

    def read(self, jobs: Iterable[JobReading] = ()) -> SiteRules:
        """Return the current rules for ``jobs``, or the last ones if an answer cannot be parsed:
        Slurm itself refuses any excess.

        Slurm reports a QOS' limits only for users and accounts with jobs in it, so a job of another
        user or account makes this read the rules again.

        Raises:
            SlurmUnavailableError: slurmctld does not answer.
        """
        start = self._clock()
        subjects = {(job.partition, job.qos, job.user, job.account) for job in jobs}
        is_expired = start >= self._good_until
        if is_expired or not subjects <= self._known_subjects:
            try:
                self._rules = self._ask()
            except SlurmUnavailableError:
                raise
            except (SlurmError, LookupError, ValueError) as error:
                log.warning("site rules", problem=describe_error(error))
            self._known_subjects = subjects if is_expired else subjects | self._known_subjects
            now = self._clock()
            self._good_until = now + (now - start) / self._share
        return self._rules

    def _ask(self) -> SiteRules:
        partitions = read_partitions(
            self._commands.run("scontrol", "show", "partition", "-a", "-o")
        )
        config = self._commands.run("scontrol", "show", "config")
        enforcement = read_enforced(config)
        flags = re.search(r"^PriorityFlags\s*=\s*(\S*)", config, re.MULTILINE)
        rules = SiteRules(
            billing_is_largest=bool(flags and "MAX_TRES" in flags[1].split(",")),
            partitions={partition.name: partition for partition in partitions},
        )
        accounts = re.search(r"^AccountingStorageType\s*=.*slurmdbd", config, re.MULTILINE)
        if "limits" not in enforcement and accounts is None:
            return rules
        text = self._commands.run("scontrol", "show", "assoc_mgr", "flags=assoc,qos", "-o")
        associations, qos = read_associations(text), read_qos(text)
        if any(partition.own_qos for partition in partitions):
            over_partition = self._over_partition()
            qos = [replace(entry, over_partition=entry.name in over_partition) for entry in qos]
        return replace(
            rules,
            has_limits="limits" in enforcement,
            safe="safe" in enforcement,
            associations={
                (entry.account, entry.user, entry.partition): entry for entry in associations
            },
            qos={entry.name: entry for entry in qos},
        )

    def _over_partition(self) -> set[str]:
        """The QOS with OverPartQOS, which override a partition's QOS; while slurmdbd is down, those
        last read.
        """
        try:
            output = self._slurmdbd.run(
                "sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=name,flags"
            )
        except SlurmError:
            return self._overriding_qos
        lines = [line.partition("|") for line in output.splitlines()]
        self._overriding_qos = {
            name for name, _, flags in lines if "OverPartQOS" in flags.split(",")
        }
        return self._overriding_qos


def read_enforced(config: str) -> frozenset[str]:
    """Parse AccountingStorageEnforce; as in Slurm, ``safe`` implies ``limits``."""
    match = re.search(r"^AccountingStorageEnforce\s*=\s*(\S*)", config, re.MULTILINE)
    words = set(match[1].lower().split(",")) if match else set()
    return frozenset(words | ({"limits"} if words & {"safe", "nosteps", "all"} else set()))


def read_partitions(text: str) -> list[Partition]:
    """Parse ``scontrol show partition -o``."""
    return [
        Partition(
            name=fields["PartitionName"],
            accounts=_names_or_all(fields.get("AllowAccounts", "ALL")),
            denied_accounts=_names_or_all(fields.get("DenyAccounts", "")) or frozenset(),
            qos=_names_or_all(fields.get("AllowQos", "ALL")),
            denied_qos=_names_or_all(fields.get("DenyQos", "")) or frozenset(),
            own_qos="" if (qos_name := fields.get("QoS", "N/A")) == "N/A" else qos_name,
            seconds=_seconds(fields.get("MaxTime", "UNLIMITED")),
            nodes=int(max_nodes) if (max_nodes := fields.get("MaxNodes", "")).isdigit() else None,
            billing=_weights(fields.get("TRESBillingWeights", "")),
            tier=int(tier) if (tier := fields.get("PriorityTier", "")).isdigit() else 1,
            gives_way=fields.get("PreemptMode", "") != "OFF",
        )
        for fields in records(text)
        if "PartitionName" in fields
    ]


def read_associations(text: str) -> list[Association]:
    """Parse the associations in ``scontrol show assoc_mgr -o``.

    Limits that a user inherits from its account are listed for both.
    """
    associations = [
        fields
        for line in text.splitlines()
        if line.startswith("ClusterName=") and "ID" in (fields := dict(_FIELD.findall(line)))
    ]
    return [_association(fields) for fields in associations]


def _association(fields: Mapping[str, str]) -> Association:
    user = fields["UserName"].partition("(")[0]
    parent = fields.get("ParentAccount", "").partition("(")[0]
    return Association(
        account=fields["Account"],
        user=UserName(user),
        partition=fields.get("Partition", ""),
        parent=fields["Account"] if user else parent,
        group=_group(fields),
        usage=_minutes_used(fields),
        per_job=_per_unit(fields),
        per_node=_tres(fields.get("MaxTRESPN", "")),
        seconds=_minutes(fields.get("MaxWallPJ", "")),
        jobs=_number(fields.get("MaxJobs", "")),
        share=_share(fields.get(_SHARES, "")),
    )


def read_qos(text: str) -> list[Qos]:
    """Parse the QOS in ``scontrol show assoc_mgr -o``.

    Slurm lists the limits of users and accounts that have jobs in the QOS, waiting ones included.
    """
    qos_list = []
    for line in text.splitlines():
        if not line.startswith("QOS="):
            continue
        qos_fields, _, account_fields = line.partition(" Account Limits=")
        accounts, _, users = account_fields.partition(" User Limits=")
        fields = dict(_FIELD.findall(qos_fields))
        qos_list.append(
            Qos(
                name=fields["QOS"].rpartition("(")[0],
                group=_group(fields),
                usage=_minutes_used(fields),
                per_user=_with_running(_first(users), "MaxTRESPU", "MaxJobsPU", "MaxTRESRunMinsPU"),
                per_account=_with_running(
                    _first(accounts), "MaxTRESPA", "MaxJobsPA", "MaxTRESRunMinsPA"
                ),
                per_job=_per_unit(fields),
                per_node=_tres(fields.get("MaxTRESPN", "")),
                least=_tres(fields.get("MinTRESPJ", "")),
                seconds=_minutes(fields.get("MaxWallPJ", "")),
                priority=_number(fields.get("Priority", "")) or 0,
            )
        )
    return qos_list


def _first(text: str) -> dict[str, str]:
    """The fields of the first user or account: ``5={MaxJobsPU=N(1) ...} 9={...}``."""
    inside = re.search(r"\{([^}]*)\}", text)
    return dict(_FIELD.findall(inside[1])) if inside else {}


def _bounds(fields: Mapping[str, str], tres: str, jobs: str) -> dict[str, int]:
    bounds = dict(_tres(fields.get(tres, "")))
    max_jobs = _number(fields.get(jobs, ""))
    return bounds if max_jobs is None else bounds | {ResourceKind.JOBS: max_jobs}


def _with_running(fields: Mapping[str, str], tres: str, jobs: str, minutes: str) -> dict[str, int]:
    return _bounds(fields, tres, jobs) | _renamed_kinds(_TO_RUN, _tres(fields.get(minutes, "")))


def _group(fields: Mapping[str, str]) -> dict[str, int]:
    bounds = _with_running(fields, "GrpTRES", "GrpJobs", "GrpTRESRunMins")
    bounds |= _renamed_kinds(_MINUTES, _tres(fields.get("GrpTRESMins", "")))
    wall = _number(fields.get("GrpWall", ""))
    return bounds if wall is None else bounds | {ResourceKind.WALL_MINUTES: wall}


def _minutes_used(fields: Mapping[str, str]) -> dict[str, int]:
    minutes = _renamed_kinds(_MINUTES, _usage_of(fields.get("GrpTRESMins", "")))
    wall = re.search(r"\((\d+)", fields.get("GrpWall", ""))
    if wall is not None:
        minutes[ResourceKind.WALL_MINUTES] = int(wall[1])
    return {kind: amount for kind, amount in minutes.items() if amount}


def _per_unit(fields: Mapping[str, str]) -> Bounds:
    bounds = dict(_tres(fields.get("MaxTRESPJ", "")))
    return bounds | _renamed_kinds(_MINUTES, _tres(fields.get("MaxTRESMinsPJ", "")))


def _renamed_kinds(kinds: Mapping[ResourceKind, ResourceKind], bounds: Bounds) -> dict[str, int]:
    return {kinds[ResourceKind(kind)]: maximum for kind, maximum in bounds.items() if kind in kinds}


def _tres(text: str) -> dict[str, int]:
    """The limits in ``cpu=20(4),gres/gpu=N(2)``; N means no limit."""
    limits = ((kind_of(name), limit) for name, limit, _ in _TRES.findall(text))
    return {kind: int(limit) for kind, limit in limits if kind is not None and limit != "N"}


def _usage_of(text: str) -> dict[str, int]:
    usage = ((kind_of(name), amount) for name, _, amount in _TRES.findall(text))
    return {kind: int(amount) for kind, amount in usage if kind is not None and amount}


_MB_PER_UNIT = {"": 1.0, "K": 1024.0, "M": 1.0, "G": 1 / 1024, "T": 1 / 1024**2}


def _weights(text: str) -> dict[str, float]:
    """Parse TRESBillingWeights, ``CPU=1.0,Mem=0.25G,GRES/gpu=2.0``; memory's weight is per MB."""
    weights = {}
    for item in text.split(","):
        name, _, value = item.partition("=")
        kind = kind_of(name.lower())
        weight = re.fullmatch(r"(\d*\.?\d+)([KMGT]?)", value)
        if kind is not None and weight is not None:
            weights[kind] = float(weight[1]) * (
                _MB_PER_UNIT[weight[2]] if kind == ResourceKind.MEMORY else 1.0
            )
    return weights


def _number(text: str) -> int | None:
    """Parse ``10(1)`` or ``10``; None for ``N(1)`` and an empty text, which mean no limit."""
    digits = text.partition("(")[0]
    return int(digits) if digits.isdigit() else None


def _minutes(text: str) -> float | None:
    minutes = _number(text)
    return None if minutes is None else minutes * 60.0


def _share(text: str) -> float:
    try:
        return float(text.split("/")[3])
    except (IndexError, ValueError):
        return 1.0


def _names_or_all(text: str) -> frozenset[str] | None:
    """Split names joined by commas; None means all."""
    if text in ("ALL", ""):
        return None
    return frozenset(text.split(",")) - {"(null)"}


def _seconds(text: str) -> float | None:
    """Parse ``1-02:00:00``, ``02:00:00`` or ``30:00``; None means no limit."""
    days, dash, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdigit() for part in [*parts, *([days] if dash else [])]):
        return None
    seconds = 0
    for part in parts:
        seconds = seconds * 60 + int(part)
    return float(seconds + 86400 * int(days or 0))

"""Reads the site's rules as slurmctld enforces them, from `scontrol show assoc_mgr`.

slurmctld keeps associations, QOS and their use in memory, so that nobody has to ask slurmdbd; only
the flags of a QOS are not among them. What is printed holds administrators' words only.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf

import structlog

from hopsd.errors import SlurmError, SlurmUnavailableError
from hopsd.model.ids import UserName
from hopsd.model.site import NO_RULES, Association, Bounds, Kind, Partition, Qos, SiteRules
from hopsd.slurm.command import SlurmCommands
from hopsd.slurm.parse import records

log = structlog.get_logger()

_KINDS = {"gres/gpu": Kind.GPUS, "cpu": Kind.CPUS, "node": Kind.NODES}
_TRES = re.compile(r"([a-z/:0-9_]+)=(N|\d+)(?:\((\d+)\))?")
_FIELD = re.compile(r"([\w/]+)=(\S*)")
_SHARES = "SharesRaw/Norm/Level/Factor"


class SiteRulesReader:
    """Reads the rules with three short commands, in at most ``share`` of the time.

    The bounds of a user in a QOS are known once the user has jobs in it, so that on a site where
    asking is quick they must not be old.
    """

    def __init__(
        self,
        commands: SlurmCommands,
        share: float = 0.05,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._commands = commands
        self._share = share
        self._clock = clock
        self._good_until = -inf
        self._rules = NO_RULES

    def read(self) -> SiteRules:
        """The current rules; if an answer cannot be parsed, the last ones, as Slurm refuses any
        excess.

        Raises:
            SlurmUnavailableError: slurmctld does not answer.
        """
        begun = self._clock()
        if begun >= self._good_until:
            try:
                self._rules = self._ask()
            except SlurmUnavailableError:
                raise
            except (SlurmError, LookupError, ValueError) as error:
                log.warning("site rules", problem=f"{type(error).__name__}: {error}")
            now = self._clock()
            self._good_until = now + (now - begun) / self._share
        return self._rules

    def _ask(self) -> SiteRules:
        partitions = read_partitions(
            self._commands.run("scontrol", "show", "partition", "-a", "-o")
        )
        enforced = read_enforced(self._commands.run("scontrol", "show", "config"))
        rules = SiteRules(partitions={partition.name: partition for partition in partitions})
        if "limits" not in enforced:
            return rules
        text = self._commands.run("scontrol", "show", "assoc_mgr", "flags=assoc,qos", "-o")
        associations, qos = read_associations(text), read_qos(text)
        if any(partition.own_qos for partition in partitions):
            over = self._over_partition()
            qos = [replace(one, over_partition=one.name in over) for one in qos]
        return replace(
            rules,
            limited=True,
            safe="safe" in enforced,
            associations={(one.account, one.user, one.partition): one for one in associations},
            qos={one.name: one for one in qos},
        )

    def _over_partition(self) -> set[str]:
        """QOS that come before a partition's; none while slurmdbd is away."""
        try:
            said = self._commands.run(
                "sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=name,flags"
            )
        except SlurmError:
            return set()
        lines = [line.partition("|") for line in said.splitlines()]
        return {name for name, _, flags in lines if "OverPartQOS" in flags.split(",")}


def read_enforced(config: str) -> frozenset[str]:
    """Parse AccountingStorageEnforce; as in Slurm, ``safe`` implies ``limits``."""
    found = re.search(r"^AccountingStorageEnforce\s*=\s*(\S*)", config, re.MULTILINE)
    words = set(found[1].lower().split(",")) if found else set()
    return frozenset(words | ({"limits"} if words & {"safe", "nosteps", "all"} else set()))


def read_partitions(text: str) -> list[Partition]:
    """Parse ``scontrol show partition -o``."""
    return [
        Partition(
            name=fields["PartitionName"],
            accounts=_only(fields.get("AllowAccounts", "ALL")),
            denied_accounts=_only(fields.get("DenyAccounts", "")) or frozenset(),
            qos=_only(fields.get("AllowQos", "ALL")),
            denied_qos=_only(fields.get("DenyQos", "")) or frozenset(),
            own_qos="" if (own := fields.get("QoS", "N/A")) == "N/A" else own,
            seconds=_seconds(fields.get("MaxTime", "UNLIMITED")),
            nodes=int(most) if (most := fields.get("MaxNodes", "")).isdigit() else None,
        )
        for fields in records(text)
        if "PartitionName" in fields
    ]


def read_associations(text: str) -> list[Association]:
    """Parse the associations in ``scontrol show assoc_mgr -o``.

    What a user inherits from its account is listed with both.
    """
    found = [
        fields
        for line in text.splitlines()
        if line.startswith("ClusterName=") and "ID" in (fields := dict(_FIELD.findall(line)))
    ]
    return [_association(fields) for fields in found]


def _association(fields: Mapping[str, str]) -> Association:
    user = fields["UserName"].partition("(")[0]
    above = fields.get("ParentAccount", "").partition("(")[0]
    minutes, used = _tres(fields.get("GrpTRESMins", "")), _used(fields.get("GrpTRESMins", ""))
    running = _used(fields.get("GrpTRESRunMins", ""))
    group = _bounds(fields, "GrpTRES", "GrpJobs")
    if Kind.GPUS in minutes:
        group |= {Kind.GPU_MINUTES: minutes[Kind.GPUS]}
    return Association(
        account=fields["Account"],
        user=UserName(user),
        partition=fields.get("Partition", ""),
        parent=fields["Account"] if user else above,
        group=group,
        gpu_minutes=used.get(Kind.GPUS, 0) + _sane(running.get(Kind.GPUS, 0)),
        each=_each(fields),
        gpus_per_node=_tres(fields.get("MaxTRESPN", "")).get(Kind.GPUS),
        seconds=_minutes(fields.get("MaxWallPJ", "")),
        jobs=_number(fields.get("MaxJobs", "")),
        share=_share(fields.get(_SHARES, "")),
    )


def read_qos(text: str) -> list[Qos]:
    """Parse the QOS in ``scontrol show assoc_mgr -o``.

    It lists the bounds of users and accounts that have jobs in the QOS, and so of every waiting
    one.
    """
    found = []
    for line in text.splitlines():
        if not line.startswith("QOS="):
            continue
        own, _, rest = line.partition(" Account Limits=")
        accounts, _, users = rest.partition(" User Limits=")
        fields = dict(_FIELD.findall(own))
        group = _bounds(fields, "GrpTRES", "GrpJobs")
        minutes = fields.get("GrpTRESMins", "")
        if Kind.GPUS in _tres(minutes):
            group |= {Kind.GPU_MINUTES: _tres(minutes)[Kind.GPUS]}
        running = _used(fields.get("GrpTRESRunMins", "")).get(Kind.GPUS, 0)
        found.append(
            Qos(
                name=fields["QOS"].rpartition("(")[0],
                group=group,
                gpu_minutes=_used(minutes).get(Kind.GPUS, 0) + _sane(running),
                per_user=_bounds(_first(users), "MaxTRESPU", "MaxJobsPU"),
                per_account=_bounds(_first(accounts), "MaxTRESPA", "MaxJobsPA"),
                each=_each(fields),
                gpus_per_node=_tres(fields.get("MaxTRESPN", "")).get(Kind.GPUS),
                seconds=_minutes(fields.get("MaxWallPJ", "")),
                priority=_number(fields.get("Priority", "")) or 0,
            )
        )
    return found


def _first(text: str) -> dict[str, str]:
    """The fields of the first user or account: ``5={MaxJobsPU=N(1) ...} 9={...}``."""
    inside = re.search(r"\{([^}]*)\}", text)
    return dict(_FIELD.findall(inside[1])) if inside else {}


def _bounds(fields: Mapping[str, str], tres: str, jobs: str) -> dict[Kind, int]:
    bounds = dict(_tres(fields.get(tres, "")))
    most = _number(fields.get(jobs, ""))
    return bounds if most is None else bounds | {Kind.JOBS: most}


def _each(fields: Mapping[str, str]) -> Bounds:
    bounds = dict(_tres(fields.get("MaxTRESPJ", "")))
    minutes = _tres(fields.get("MaxTRESMinsPJ", "")).get(Kind.GPUS)
    return bounds if minutes is None else bounds | {Kind.GPU_MINUTES: minutes}


def _tres(text: str) -> dict[Kind, int]:
    """The bounds of ``cpu=20(4),gres/gpu=N(2)``; N: none."""
    found = _TRES.findall(text)
    return {_KINDS[name]: int(most) for name, most, _ in found if name in _KINDS and most != "N"}


def _used(text: str) -> dict[Kind, int]:
    found = _TRES.findall(text)
    return {_KINDS[name]: int(used) for name, _, used in found if name in _KINDS and used}


def _number(text: str) -> int | None:
    """``10(1)`` or ``10``; ``N(1)`` and nothing are no bound."""
    digits = text.partition("(")[0]
    return int(digits) if digits.isdigit() else None


def _sane(minutes: int) -> int:
    """A job without a time limit counts as 2**32 minutes and more: it cannot be kept free."""
    return minutes if minutes < 2**31 else 0


def _minutes(text: str) -> float | None:
    minutes = _number(text)
    return None if minutes is None else minutes * 60.0


def _share(text: str) -> float:
    try:
        return float(text.split("/")[3])
    except (IndexError, ValueError):
        return 1.0


def _only(text: str) -> frozenset[str] | None:
    """Names joined by a comma; None: all."""
    if text in ("ALL", ""):
        return None
    return frozenset(text.split(",")) - {"(null)"}


def _seconds(text: str) -> float | None:
    """``1-02:00:00``, ``02:00:00`` and ``30:00``; None: no bound."""
    days, dash, rest = text.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdigit() for part in [*parts, *([days] if dash else [])]):
        return None
    seconds = 0
    for part in parts:
        seconds = seconds * 60 + int(part)
    return float(seconds + 86400 * int(days or 0))

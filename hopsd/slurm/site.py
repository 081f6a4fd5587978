"""Site settings: reservations, licences, groups, default memory and cores of jobs."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from hopsd.core.submission.nodelist import node_names
from hopsd.errors import SlurmError
from hopsd.model.ids import NodeName, UserName
from hopsd.model.reading import SiteMemory
from hopsd.model.site import Licence, SiteRules

_LINE = re.compile(r"^(\w+)\s*=\s*(.*?)\s*$", re.MULTILINE)
_PER_GPU = re.compile(r"DefMemPerGPU=(\d+)", re.IGNORECASE)
_CPUS = re.compile(r"DefCpuPerGPU=(\d+)", re.IGNORECASE)


def reserved_from(records: Iterable[Mapping[str, str]], now: float) -> dict[NodeName, float]:
    """Return when each node's next reservation begins (epoch seconds).

    ``records`` come from ``scontrol show reservation -o``. A reservation that has begun is in the
    node's state instead. A reservation of some of a node's cores counts for the whole node.

    Raises:
        SlurmError: a start time cannot be parsed.
    """
    starts: dict[NodeName, float] = {}
    for fields, nodes in _node_reservations(records, "StartTime"):
        begin = _seconds(fields["StartTime"])
        if begin > now:
            for node in node_names(nodes):
                starts[node] = min(begin, starts.get(node, begin))
    return starts


def reserved_now(records: Iterable[Mapping[str, str]], now: float) -> dict[NodeName, str]:
    """Return the names of the reservations that each node is in now, joined by ``,``."""
    reservations_by_node: dict[NodeName, str] = {}
    for fields, nodes in _node_reservations(records, "ReservationName", "StartTime", "EndTime"):
        if _seconds(fields["StartTime"]) <= now < _seconds(fields["EndTime"]):
            for node in node_names(nodes):
                name = fields["ReservationName"]
                reservations_by_node[node] = (
                    f"{reservations_by_node[node]},{name}" if node in reservations_by_node else name
                )
    return reservations_by_node


@dataclass(frozen=True, slots=True)
class MagneticReservation:
    """A reservation that Slurm also gives to jobs that do not name it (MAGNETIC, scontrol(1)).

    A name of ``users``, ``accounts`` or ``groups`` may begin with ``-``: then it is kept out. Each
    of the three admits everyone if it is empty.
    """

    name: str
    users: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()

    def admits(
        self, user: str, accounts: Collection[str], groups: Callable[[], Collection[str] | None]
    ) -> bool:
        """Whether a job of ``user`` may use it. ``accounts``: the job's and those above it."""
        return (
            _admits(self.users, [user])
            and _admits(self.accounts, accounts)
            and (not self.groups or _admits(self.groups, groups() or ()))
        )


def account_and_above(account: str, rules: SiteRules) -> list[str]:
    """Return the account and those above it, as far as ``rules`` has them."""
    accounts = [account]
    while link := rules.associations.get((accounts[-1], UserName(""), "")):
        if not link.parent or link.parent in accounts:
            break
        accounts.append(link.parent)
    return accounts


def _admits(listed: frozenset[str], names: Collection[str]) -> bool:
    kept_out = {name[1:] for name in listed if name.startswith("-")}
    if kept_out:
        return kept_out.isdisjoint(names)
    return not listed or not listed.isdisjoint(names)


def magnetic_now(records: Iterable[Mapping[str, str]], now: float) -> list[MagneticReservation]:
    """Return the magnetic reservations of nodes that have begun."""
    return [
        MagneticReservation(
            fields["ReservationName"],
            *(_names(fields, key) for key in ("Users", "Accounts", "Groups")),
        )
        for fields, _ in _node_reservations(records, "ReservationName", "StartTime", "EndTime")
        if "MAGNETIC" in fields.get("Flags", "").split(",")
        and _seconds(fields["StartTime"]) <= now < _seconds(fields["EndTime"])
    ]


def _names(fields: Mapping[str, str], key: str) -> frozenset[str]:
    value = fields.get(key, "(null)")
    return frozenset() if value == "(null)" else frozenset(value.split(","))


def reserved_until(records: Iterable[Mapping[str, str]], now: float) -> dict[NodeName, float]:
    """Return when each node's current reservation ends or, if it is in none, its next one."""
    ends: dict[NodeName, tuple[float, float]] = {}
    for fields, nodes in _node_reservations(records, "StartTime", "EndTime"):
        begin, end = max(now, _seconds(fields["StartTime"])), _seconds(fields["EndTime"])
        if end > now:
            for node in node_names(nodes):
                ends[node] = min((begin, end), ends.get(node, (begin, end)))
    return {node: end for node, (_, end) in ends.items()}


def _node_reservations(
    records: Iterable[Mapping[str, str]], *keys: str
) -> Iterator[tuple[Mapping[str, str], str]]:
    """Yield reservations that have ``keys``, with their nodes; skip those of licences alone."""
    for fields in records:
        nodes = fields.get("Nodes", "(null)")
        if nodes != "(null)" and fields.keys() >= set(keys):
            yield fields, nodes


def _seconds(text: str) -> float:
    """Convert a local time, as Slurm's commands print it, to seconds since the epoch."""
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError as error:
        raise SlurmError(f"scontrol show reservation: {text!r} is not a time") from error


def site_memory(config: str) -> SiteMemory:
    """Parse the default memory and cores in ``scontrol show config``."""
    settings = dict(_LINE.findall(config))
    return SiteMemory(
        counted="MEMORY" in settings.get("SelectTypeParameters", "").upper(),
        mb_per_gpu=_integer(_PER_GPU, settings.get("JobDefaults", "")),
        mb_per_cpu=_number(settings.get("DefMemPerCPU")),
        mb_per_node=_number(settings.get("DefMemPerNode")),
        cores_per_gpu=_integer(_CPUS, settings.get("JobDefaults", "")),
        most_mb_per_node=_number(settings.get("MaxMemPerNode")),
    )


def partition_memory(
    records: Iterable[Mapping[str, str]], site: SiteMemory
) -> dict[str, SiteMemory]:
    """Parse ``scontrol show partition -o`` for partitions that have defaults of their own."""
    by_partition = {}
    for fields in records:
        memory = site
        cpu, node = _number(fields.get("DefMemPerCPU")), _number(fields.get("DefMemPerNode"))
        if cpu is not None or node is not None:  # Slurm keeps one number, so one replaces both
            memory = replace(memory, mb_per_cpu=cpu, mb_per_node=node)
        defaults = fields.get("JobDefaults", "")
        if (per_gpu := _integer(_PER_GPU, defaults)) is not None:
            memory = replace(memory, mb_per_gpu=per_gpu)
        if (cores := _integer(_CPUS, defaults)) is not None:
            memory = replace(memory, cores_per_gpu=cores)
        max_per_node, per_cpu = (
            _number(fields.get("MaxMemPerNode")),
            _number(fields.get("MaxMemPerCPU")),
        )
        if max_per_node is not None or per_cpu is not None:
            memory = replace(memory, most_mb_per_node=max_per_node)
        if memory != site and "PartitionName" in fields:
            by_partition[fields["PartitionName"]] = memory
    return by_partition


def licences(records: Iterable[Mapping[str, str]]) -> dict[str, Licence]:
    """Parse licences and their counts from ``scontrol show licenses -o``."""
    return {
        fields["LicenseName"]: Licence(int(fields["Total"]), int(fields.get("Used", "0")))
        for fields in records
        if fields.get("Total", "").isdigit() and "LicenseName" in fields
    }


def groups_of(user: str) -> frozenset[str]:
    """The groups of an account, by name; empty if this machine does not know the account."""
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        return frozenset()
    names = set()
    for gid in os.getgrouplist(user, account.pw_gid):
        with contextlib.suppress(KeyError):
            names.add(grp.getgrgid(gid).gr_name)
    return frozenset(names)


def closed_groups(
    partition: str,
    records: Mapping[str, frozenset[str]],
    groups: Callable[[], frozenset[str] | None],
) -> str:
    """Say why no partition of ``a,b`` takes a job of a user in these ``groups``; empty if one does,
    or if the groups are unknown (None), so that Slurm decides.

    ``records`` has the groups that each partition is limited to, if any.
    """
    names = partition.split(",")
    if not all(name in records for name in names):
        return ""
    user_groups = groups()
    if user_groups is None or any(not user_groups.isdisjoint(records[name]) for name in names):
        return ""
    return " and ".join(
        f"partition {name} is for the groups {', '.join(sorted(records[name]))}" for name in names
    )


def partition_groups(records: Iterable[Mapping[str, str]]) -> dict[str, frozenset[str]]:
    """Parse AllowGroups of the partitions that are not open to everyone."""
    return {
        fields["PartitionName"]: frozenset(fields["AllowGroups"].split(","))
        for fields in records
        if fields.get("AllowGroups", "ALL") != "ALL" and "PartitionName" in fields
    }


def _integer(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    return int(match[1]) if match else None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None

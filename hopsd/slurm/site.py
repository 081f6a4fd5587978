"""Site settings: reservations, licences, groups, default memory and cores of jobs."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from hopsd.core.submission.nodelist import node_names
from hopsd.errors import SlurmError
from hopsd.model.ids import NodeName
from hopsd.model.reading import SiteMemory
from hopsd.model.site import Licence

_LINE = re.compile(r"^(\w+)\s*=\s*(.*?)\s*$", re.MULTILINE)
_PER_GPU = re.compile(r"DefMemPerGPU=(\d+)", re.IGNORECASE)
_CPUS = re.compile(r"DefCpuPerGPU=(\d+)", re.IGNORECASE)


def reserved_from(records: Iterable[Mapping[str, str]], now: float) -> dict[NodeName, float]:
    """When each node's next reservation begins.

    ``records``: from ``scontrol show reservation -o``. One that has begun is in the node's state. A
    reservation of some of a node's cores counts as a reservation of the node.

    Raises:
        SlurmError: a start time cannot be parsed.
    """
    found: dict[NodeName, float] = {}
    for fields in records:
        nodes = fields.get("Nodes", "(null)")
        if "StartTime" not in fields or nodes == "(null)":
            continue
        begin = _seconds(fields["StartTime"])
        if begin > now:
            for node in node_names(nodes):
                found[node] = min(begin, found.get(node, begin))
    return found


def reserved_now(records: Iterable[Mapping[str, str]], now: float) -> dict[NodeName, str]:
    """The reservations that each node is in now, by name, joined by ``,``."""
    found: dict[NodeName, str] = {}
    for fields in records:
        nodes = fields.get("Nodes", "(null)")
        if nodes == "(null)" or not {"ReservationName", "StartTime", "EndTime"} <= fields.keys():
            continue
        if _seconds(fields["StartTime"]) <= now < _seconds(fields["EndTime"]):
            for node in node_names(nodes):
                name = fields["ReservationName"]
                found[node] = f"{found[node]},{name}" if node in found else name
    return found


def _seconds(text: str) -> float:
    """Seconds since the epoch; Slurm's commands print local times."""
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError as error:
        raise SlurmError(f"scontrol show reservation: StartTime {text!r} is no time") from error


def site_memory(config: str) -> SiteMemory:
    """Default memory and cores from ``scontrol show config``."""
    said = dict(_LINE.findall(config))
    return SiteMemory(
        counted="MEMORY" in said.get("SelectTypeParameters", "").upper(),
        mb_per_gpu=_found(_PER_GPU, said.get("JobDefaults", "")),
        mb_per_cpu=_number(said.get("DefMemPerCPU")),
        mb_per_node=_number(said.get("DefMemPerNode")),
        cores_per_gpu=_found(_CPUS, said.get("JobDefaults", "")),
        most_mb_per_node=_number(said.get("MaxMemPerNode")),
    )


def partition_memory(
    records: Iterable[Mapping[str, str]], site: SiteMemory
) -> dict[str, SiteMemory]:
    """From ``scontrol show partition -o``: the partitions that have defaults of their own."""
    found = {}
    for fields in records:
        own = site
        cpu, node = _number(fields.get("DefMemPerCPU")), _number(fields.get("DefMemPerNode"))
        if cpu is not None or node is not None:  # Slurm keeps one number for both
            own = replace(own, mb_per_cpu=cpu, mb_per_node=node)
        defaults = fields.get("JobDefaults", "")
        if (per_gpu := _found(_PER_GPU, defaults)) is not None:
            own = replace(own, mb_per_gpu=per_gpu)
        if (cores := _found(_CPUS, defaults)) is not None:
            own = replace(own, cores_per_gpu=cores)
        most, per_cpu = _number(fields.get("MaxMemPerNode")), _number(fields.get("MaxMemPerCPU"))
        if most is not None or per_cpu is not None:
            own = replace(own, most_mb_per_node=most)
        if own != site and "PartitionName" in fields:
            found[fields["PartitionName"]] = own
    return found


def licences(records: Iterable[Mapping[str, str]]) -> dict[str, Licence]:
    """Licences and their counts, from ``scontrol show licenses -o``."""
    return {
        fields["LicenseName"]: Licence(int(fields["Total"]), int(fields.get("Used", "0")))
        for fields in records
        if fields.get("Total", "").isdigit() and "LicenseName" in fields
    }


def groups_of(user: str) -> frozenset[str]:
    """The groups of an account, by name; empty if this machine does not know the account."""
    try:
        own = pwd.getpwnam(user)
    except KeyError:
        return frozenset()
    names = set()
    for gid in os.getgrouplist(user, own.pw_gid):
        with contextlib.suppress(KeyError):
            names.add(grp.getgrgid(gid).gr_name)
    return frozenset(names)


def closed_groups(
    partition: str, records: Mapping[str, frozenset[str]], groups: Callable[[], frozenset[str]]
) -> str:
    """Why no partition of ``a,b`` takes a job of a user in these ``groups``; empty: one does.

    ``records``: the groups that each partition is for, where it is not for all.
    """
    asked = partition.split(",")
    if not all(name in records for name in asked):
        return ""
    own = groups()
    if any(not own.isdisjoint(records[name]) for name in asked):
        return ""
    return " and ".join(
        f"partition {name} is for the groups {', '.join(sorted(records[name]))}" for name in asked
    )


def partition_groups(records: Iterable[Mapping[str, str]]) -> dict[str, frozenset[str]]:
    """AllowGroups of the partitions that are not for all."""
    return {
        fields["PartitionName"]: frozenset(fields["AllowGroups"].split(","))
        for fields in records
        if fields.get("AllowGroups", "ALL") != "ALL" and "PartitionName" in fields
    }


def _found(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    return int(found[1]) if found else None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None

"""Administrators' settings: reservations, and default memory of jobs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime

from ClusterShell.NodeSet import NodeSet

from hopsd.errors import SlurmError
from hopsd.model.ids import NodeName
from hopsd.model.reading import SiteMemory

_LINE = re.compile(r"^(\w+)\s*=\s*(.*?)\s*$", re.MULTILINE)
_PER_GPU = re.compile(r"DefMemPerGPU=(\d+)")


def reserved_from(records: Iterable[Mapping[str, str]], now: float) -> dict[NodeName, float]:
    """When each node's next reservation begins.

    ``records``: of ``scontrol show reservation -o``. One that has begun is in the node's state. A
    reservation of some of a node's cores counts as one of the node.

    Raises:
        SlurmError: a start time that is not understood.
    """
    found: dict[NodeName, float] = {}
    for fields in records:
        nodes = fields.get("Nodes", "(null)")
        if "StartTime" not in fields or nodes == "(null)":
            continue
        begin = _seconds(fields["StartTime"])
        if begin > now:
            for node in map(NodeName, NodeSet(nodes)):
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
            for node in map(NodeName, NodeSet(nodes)):
                name = fields["ReservationName"]
                found[node] = f"{found[node]},{name}" if node in found else name
    return found


def _seconds(text: str) -> float:
    """Slurm's commands tell local times."""
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError as error:
        raise SlurmError(f"scontrol show reservation: StartTime {text!r} is no time") from error


def site_memory(config: str) -> SiteMemory:
    """Default memory from ``scontrol show config``; a partition's own settings are ignored."""
    said = dict(_LINE.findall(config))
    per_gpu = _PER_GPU.search(said.get("JobDefaults", ""))
    return SiteMemory(
        counted="MEMORY" in said.get("SelectTypeParameters", "").upper(),
        mb_per_gpu=int(per_gpu[1]) if per_gpu else None,
        mb_per_cpu=_number(said.get("DefMemPerCPU")),
        mb_per_node=_number(said.get("DefMemPerNode")),
    )


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None

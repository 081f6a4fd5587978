"""Reservations to come: Slurm starts no job that would run into one (22.05)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from ClusterShell.NodeSet import NodeSet

from hopsd.errors import SlurmError
from hopsd.model.ids import NodeName


def reserved_from(records: Iterable[Mapping[str, str]], now: float) -> dict[NodeName, float]:
    """When the next reservation of each node begins.

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


def _seconds(text: str) -> float:
    """Slurm's commands tell local times."""
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError as error:
        raise SlurmError(f"scontrol show reservation: StartTime {text!r} is no time") from error

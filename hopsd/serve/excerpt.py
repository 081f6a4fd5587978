"""A part of the status document: chosen jobs, the first rows of each list, and totals of all.

Nobody reads the whole document of a cluster of 5,000 nodes and 15,000 jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hopsd.errors import InputError
from hopsd.model.devices import is_cpu

Document = dict[str, Any]

JOBS = ("running", "waiting")


@dataclass(frozen=True, slots=True)
class JobSelection:
    """Selects jobs of these users, submitted to these partitions, in these states or waiting for
    these reasons; an empty set selects any. ``most`` limits the rows of each list; None: no limit.
    """

    users: frozenset[str] = frozenset()
    partitions: frozenset[str] = frozenset()
    states: frozenset[str] = frozenset()
    most: int | None = None

    @classmethod
    def parse(cls, arguments: Mapping[str, Any]) -> JobSelection:
        """Parse the selection in a request's arguments; a missing argument selects everything.

        Raises:
            InputError: ``users``, ``partitions`` or ``states`` is not a list of words, or ``most``
                not a number of rows.
        """
        limit = arguments.get("most")
        if limit is not None and (
            isinstance(limit, bool) or not isinstance(limit, int) or limit < 0
        ):
            raise InputError(f"most: {limit!r:.40}; give a number of rows from 0 on")
        users, partitions, states = (
            _words(arguments, k) for k in ("users", "partitions", "states")
        )
        return cls(users, partitions, frozenset(map(str.lower, states)), limit)

    def fits(self, job: Document) -> bool:
        """Whether a job's row is selected. A job may have several partitions."""
        return (
            (not self.users or job["user"] in self.users)
            and (not self.partitions or not self.partitions.isdisjoint(job["partition"].split(",")))
            and (not self.states or not self.states.isdisjoint({job["state"].lower(), job["code"]}))
        )


def _words(arguments: Mapping[str, Any], key: str) -> frozenset[str]:
    value = arguments.get(key, [])
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise InputError(f"{key}: give a list of words")
    return frozenset(value)


def excerpt(doc: Document, choice: JobSelection) -> Document:
    """Return the document with only the selected jobs, cut to the first rows of each list, and with
    ``totals`` of the whole document.
    """
    jobs = {kind: [*filter(choice.fits, doc[kind])] for kind in JOBS}
    doc = {**doc, **jobs}
    doc["totals"] = totals(doc)
    if choice.most is None:
        return doc
    doc |= {kind: doc[kind][: choice.most] for kind in ("nodes", *JOBS)}
    if doc["round"]:
        doc["round"] = {
            key: value[: choice.most] if isinstance(value, list) else value
            for key, value in doc["round"].items()
        }
    return doc


def totals(doc: Document) -> Document:
    """Count the rows of each list, GPUs by type, jobs by user and waiting jobs by reason."""
    steps = (doc["round"] or {}).get("steps", [])
    return {
        "nodes": len(doc["nodes"]),
        "running": len(doc["running"]),
        "waiting": len(doc["waiting"]),
        "steps": len(steps),
        "types": _by_type(doc["nodes"]),
        "users": _by_user(doc),
        "codes": dict(_codes(doc["waiting"]).most_common()),
    }


def _by_type(nodes: Iterable[Document]) -> list[Document]:
    """Count nodes and GPUs by type, in the nodes' order; ``idle`` GPUs are on usable nodes."""
    totals: dict[str, Document] = {}
    for node in nodes:
        kind = node["gpu_type"]
        type_total = totals.setdefault(
            kind, {"gpu_type": kind, "nodes": 0, "gpus": 0, "usable": 0, "idle": 0}
        )
        type_total["nodes"] += 1
        type_total["gpus"] += node["gpus"]
        if node["usable"]:
            type_total["usable"] += node["gpus"]
            type_total["idle"] += node["idle"]
    return [*totals.values()]


def _by_user(doc: Document) -> list[Document]:
    """Count every user's jobs and the GPUs they hold, without CPUs, by GPUs in falling order."""
    runs, waits = (Counter(job["user"] for job in doc[kind]) for kind in JOBS)
    cpus = {node["name"] for node in doc["nodes"] if is_cpu(node["gpu_type"])}
    gpus: Counter[str] = Counter()
    for job in doc["running"]:
        gpus[job["user"]] += sum(g for node, g in job["placement"].items() if node not in cpus)
    users = sorted(runs | waits, key=lambda user: (-gpus[user], -waits[user], user))
    return [
        {"user": user, "gpus": gpus[user], "running": runs[user], "waiting": waits[user]}
        for user in users
    ]


def _codes(waiting: Iterable[Document]) -> Counter[str]:
    return Counter(job["code"] or job["state"].lower() for job in waiting)

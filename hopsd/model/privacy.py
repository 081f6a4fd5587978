"""Who may see what of others."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Private(StrEnum):
    """What slurm.conf's PrivateData can hide from ordinary users and hopsd could tell them."""

    JOBS = "jobs"
    NODES = "nodes"
    USAGE = "usage"


@dataclass(frozen=True, slots=True)
class Privacy:
    """What is hidden at the site, and from whom nothing is: numeric ids and names of accounts."""

    hidden: frozenset[Private] = frozenset()
    privileged_uids: frozenset[int] = frozenset({0})
    privileged_users: frozenset[str] = frozenset()


UNKNOWN = Privacy(frozenset(Private))
"""Until Slurm has said: everything is hidden."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who asks, and what of others is hidden from them."""

    uid: int
    user: str
    hidden: frozenset[Private] = field(default_factory=frozenset)

    def hides(self, *kinds: Private) -> bool:
        return not self.hidden.isdisjoint(kinds)

"""Who may see which information about other users' jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Private(StrEnum):
    """What slurm.conf's PrivateData can hide from ordinary users and hopsd could reveal."""

    JOBS = "jobs"
    NODES = "nodes"
    USAGE = "usage"


@dataclass(frozen=True, slots=True)
class Privacy:
    """What the site hides, and the users (by uid or name) from whom nothing is hidden."""

    secrets: frozenset[Private] = frozenset()
    privileged_uids: frozenset[int] = frozenset({0})
    privileged_users: frozenset[str] = frozenset()


UNKNOWN = Privacy(frozenset(Private))
"""Applies until Slurm's configuration has been read: everything is hidden."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """The user who asks, and what is hidden from them about others."""

    uid: int
    user: str
    secrets: frozenset[Private] = field(default_factory=frozenset)

    def hides(self, *kinds: Private) -> bool:
        return not self.secrets.isdisjoint(kinds)

"""Sets of servers of jobs that are bound to racks: what is needed to pack them and to price those
that are not listed.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from hopsd.core.placement.demands import Demands
from hopsd.core.placement.rack_sets import LeafServers, RackRule
from hopsd.core.placement.shapes import ShapesOfSize
from hopsd.model.arrays import Floats, Ints


@dataclass(frozen=True, slots=True)
class RackFamily:
    """Sets of ``count`` servers with ``size`` GPUs in all for ``jobs``; the ``listed`` ones are
    columns, those of job ``jobs[i]`` are ``first[i]`` and the following. ``complete``: no others.

    ``leaves`` (n,): the numbers of leaves that sets may span; ``example`` (n,): a listed one on so
    many, or about. ``headroom`` (jobs, n): how much faster than there a job could be on so many.
    ``able``: the servers that may be part of a set; ``whole`` (servers,): what each gives. If
    ``parts`` is given, sets are uneven: the last server gives less, ``parts`` (server by server)
    for 1, 2, ... GPUs.
    """

    key: Hashable
    jobs: Ints
    first: Ints
    rule: RackRule
    count: int
    size: int
    listed: ShapesOfSize
    leaves: Ints
    example: Ints
    headroom: Floats
    able: LeafServers
    whole: Demands
    parts: Demands | None = None
    complete: bool = False

    @property
    def unit(self) -> int:
        """How many servers go to a leaf together."""
        return self.rule.unit(self.count)

    @property
    def groups(self) -> int:
        """How many units there are."""
        return self.count // self.unit

    def columns(self, kind: int) -> Ints:
        """Each job's listed column on ``leaves[kind]`` leaves, (jobs,)."""
        columns: Ints = self.first + self.example[kind]
        return columns

    def find(self, servers: Ints) -> int:
        """The position of a set of servers among the listed ones, -1 if it is not there."""
        same = np.flatnonzero((self.listed.servers == servers).all(axis=1))
        return int(same[0]) if len(same) else -1

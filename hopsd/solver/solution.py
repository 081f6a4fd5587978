"""A solver's result."""

from __future__ import annotations

from dataclasses import dataclass

from hopsd.model.arrays import Ints
from hopsd.model.plan import PlanStatus


@dataclass(frozen=True, slots=True)
class Solution:
    """``choice`` (jobs,): each job's column, -1 for none; ``bound`` is scaled like the program."""

    choice: Ints
    bound: float
    status: PlanStatus

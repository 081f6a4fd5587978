"""What a solver hands back."""

from __future__ import annotations

from dataclasses import dataclass

from hopsd.model.arrays import Ints
from hopsd.model.plan import PlanStatus


@dataclass(frozen=True, slots=True)
class Solution:
    """``choice`` (jobs,): every job's column, -1 for none; ``bound`` scaled like the program."""

    choice: Ints
    bound: float
    status: PlanStatus

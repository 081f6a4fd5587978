"""A solver's result."""

from __future__ import annotations

from dataclasses import dataclass

from hopsd.model.arrays import Ints
from hopsd.model.plan import PlanStatus
from hopsd.solver.bound.reduced_cost import ItemPrices


@dataclass(frozen=True, slots=True)
class Solution:
    """``choice`` (jobs,): each job's column, -1 for none; ``bound`` is scaled like the program.

    ``prices``: the best known, if any are; CBC may have proven more.
    """

    choice: Ints
    bound: float
    status: PlanStatus
    prices: ItemPrices | None = None

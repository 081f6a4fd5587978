"""A solver's result."""

from __future__ import annotations

from dataclasses import dataclass

from hopsd.model.arrays import Ints
from hopsd.model.plan import PlanStatus
from hopsd.solver.bound.reduced_cost import ItemPrices


@dataclass(frozen=True, slots=True)
class Solution:
    """``choice`` (jobs,): each job's column, -1 for none; ``bound`` is scaled like the program.

    ``prices`` are the best known, if there are any; CBC may have proven a tighter ``bound``.
    """

    choice: Ints
    bound: float
    status: PlanStatus
    prices: ItemPrices | None = None

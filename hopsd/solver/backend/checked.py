"""A wrapper that checks and counts a solver's answers, so that a failing solver is reported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hopsd.model.arrays import Floats
from hopsd.solver.backend.model import Answer, Model

# Model, a feasible start, relative gap, seconds, and how many nodes to branch on at most.
Solve = Callable[[Model, Floats | None, float, float, int | None], Answer]


@dataclass(slots=True)
class CheckedSolver:
    """A solver with checked answers. ``asked`` counts calls, ``answered`` those with a feasible
    solution.

    Called from several threads: the counts may miss one, and are only compared with zero.
    """

    solve: Solve
    asked: int = 0
    answered: int = 0

    def __call__(
        self,
        model: Model,
        start: Floats | None,
        gap: float,
        seconds: float,
        nodes_max: int | None = None,
    ) -> Answer:
        if seconds <= 0:
            return Answer()
        self.asked += 1
        try:
            answer = self.solve(model, start, gap, seconds, nodes_max)
        except Exception:  # whatever breaks in a solver, a plan is at hand
            return Answer()
        if answer.x is not None and not model.holds(answer.x):
            return Answer()
        self.answered += answer.x is not None
        return answer

    @property
    def failed(self) -> bool:
        """Whether it was called and never gave a usable answer."""
        return self.asked > 0 and self.answered == 0

"""A wrapper that checks and counts a solver's answers, so that a failing solver is reported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from hopsd.model.arrays import Floats
from hopsd.solver.backend.integer_program import Answer, Model

# Arguments: model, feasible start, relative gap, seconds, and the most nodes to branch on.
Solve = Callable[[Model, Floats | None, float, float, int | None], Answer]

# Until a solver has answered, a call may take this share of its time, so that time remains for what
# needs no solver; after this many calls without an answer the solver is not called again.
_FIRST_CALL_SHARE, _TRIES = 0.5, 2
# A call with a limit under this many seconds that used up this share of it is not counted: the
# machine may be busy.
_LATE_SHARE, _SHORT = 0.8, 1.0


@dataclass(slots=True)
class CheckedSolver:
    """A solver with checked answers. ``calls`` counts the calls with time for an answer,
    ``answers`` those with a feasible solution.

    Several threads may call it: a count may then miss one, which at worst allows one more try.
    """

    solve: Solve
    calls: int = 0
    answers: int = 0

    def __call__(
        self,
        model: Model,
        start: Floats | None,
        gap: float,
        seconds: float,
        nodes_max: int | None = None,
    ) -> Answer:
        budget = seconds if self.answers else _FIRST_CALL_SHARE * seconds
        if budget <= 0 or (self.has_failed and self.calls >= _TRIES):
            return Answer()
        began = monotonic()
        try:
            answer = self.solve(model, start, gap, budget, nodes_max)
        except Exception:  # there is a plan even if the solver breaks
            answer = Answer()
        if answer.x is not None and not model.holds(answer.x):
            answer = Answer()
        is_late = (
            answer.x is None and budget < _SHORT and monotonic() - began >= _LATE_SHARE * budget
        )
        self.calls += not is_late
        self.answers += answer.x is not None
        return answer

    @property
    def has_failed(self) -> bool:
        """Whether the solver had time for an answer and never gave a usable one."""
        return self.calls > 0 and self.answers == 0

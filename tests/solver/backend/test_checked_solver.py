"""A solver that does not answer is detected and takes only a part of the time."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest

from hopsd.model.arrays import Floats
from hopsd.solver.backend import checked_solver
from hopsd.solver.backend.checked_solver import CheckedSolver
from hopsd.solver.backend.integer_program import Answer, Model

ONE_ENTRY = Model(
    np.ones(1), np.array([0, 1]), np.zeros(1, dtype=np.int64), np.ones(1), np.ones(1), np.ones(1)
)


class Double:
    """Answers from call number ``answers`` on; records the time that each call was given."""

    def __init__(self, answers: int) -> None:
        self.answers = answers
        self.time_limits: list[float] = []

    def __call__(
        self, model: Model, start: Floats | None, gap: float, seconds: float, nodes: int | None
    ) -> Answer:
        self.time_limits.append(seconds)
        return Answer(np.ones(1), 1.0) if len(self.time_limits) > self.answers else Answer()


def test_a_call_without_time_is_not_a_failure() -> None:
    solver = CheckedSolver(Double(9))
    solver(ONE_ENTRY, None, 0.01, -1.0)
    assert not solver.has_failed
    solver(ONE_ENTRY, None, 0.01, 1.0)
    assert solver.has_failed


def test_a_late_call_with_little_time_is_not_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks = count(0.0, 1.0)
    monkeypatch.setattr(checked_solver, "monotonic", lambda: next(ticks))
    solver = CheckedSolver(Double(9))
    solver(ONE_ENTRY, None, 0.01, 1.0)
    assert not solver.has_failed
    solver(ONE_ENTRY, None, 0.01, 60.0)
    assert solver.has_failed


def test_a_solver_that_never_answers_is_no_longer_called() -> None:
    solve = Double(9)
    solver = CheckedSolver(solve)
    for _ in range(5):
        solver(ONE_ENTRY, None, 0.01, 8.0)
    assert solve.time_limits == [4.0, 4.0]
    assert solver.has_failed


def test_a_solver_that_answers_gets_all_of_its_time() -> None:
    solve = Double(1)
    solver = CheckedSolver(solve)
    for _ in range(3):
        solver(ONE_ENTRY, None, 0.01, 8.0)
    assert solve.time_limits == [4.0, 4.0, 8.0]
    assert not solver.has_failed

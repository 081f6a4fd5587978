"""Whatever the solver does, a feasible plan with a bound and a true status is returned."""

from __future__ import annotations

import stat
import sys
from collections.abc import Callable
from math import inf
from pathlib import Path

import numpy as np
import pytest
from instances import snapshot
from programs import assert_holds, in_time, program_of, usable

from bench.plan import instances as bench
from hopsd.model.arrays import Floats
from hopsd.model.plan import PlanSettings, PlanStatus
from hopsd.policies.hops.policy import plan
from hopsd.solver import large
from hopsd.solver.backend import cbc, highs
from hopsd.solver.backend.checked_solver import Solve
from hopsd.solver.backend.integer_program import Answer, Model
from hopsd.solver.large import CBC_TOLERANCE
from hopsd.solver.solve import solve

pytestmark = pytest.mark.slow  # solvers that hang are waited for

Defect = Callable[[Model], Answer]


def raise_error(_: Model) -> Answer:
    raise RuntimeError("segmentation fault, as it were")


def silent(_: Model) -> Answer:
    return Answer()


def fractional(model: Model) -> Answer:
    return Answer(np.full(len(model.objective), 0.5), 1.0)


def over_allocating(model: Model) -> Answer:
    return Answer(np.ones(len(model.objective)), 1.0)


def not_numbers(model: Model) -> Answer:
    return Answer(np.full(len(model.objective), np.nan), 1.0)


def too_short(_: Model) -> Answer:
    return Answer(np.ones(1), 1.0)


@pytest.mark.parametrize(
    "corrupt", [raise_error, silent, fractional, over_allocating, not_numbers, too_short]
)
@pytest.mark.parametrize("seed", range(3))
def test_nonsense_from_the_solver_makes_no_plan_worse(corrupt: Defect, seed: int) -> None:
    program = program_of(snapshot(seed))

    solution = solve(program, 0.0, 60.0, solver=lambda model, *_: corrupt(model))
    assert program.feasible(solution.choice)
    assert not usable(program, solution.choice)
    best = solve(program, 0.0, 20.0)
    assert program.scaled_objective(solution.choice) >= 0.8 * program.scaled_objective(best.choice)
    assert solution.bound >= program.scaled_objective(best.choice) * (1 - 1e-9)


@pytest.mark.parametrize(
    "corrupt", [raise_error, silent, fractional, over_allocating, not_numbers, too_short]
)
def test_a_solver_that_never_answers_is_reported(
    corrupt: Defect, caplog: pytest.LogCaptureFixture
) -> None:
    """This also holds if the plan is proven without it."""
    program = program_of(snapshot(0))
    solution = solve(program, 0.0, 60.0, solver=lambda model, *_: corrupt(model))
    assert "the solver gave no usable answer" in caplog.text
    is_optimal = program.scaled_objective(solution.choice) >= solution.bound * (1 - CBC_TOLERANCE)
    assert solution.status is (PlanStatus.OPTIMAL if is_optimal else PlanStatus.FALLBACK)


@pytest.mark.long
def test_a_solver_that_never_answers_does_not_prevent_other_proofs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: the search ended with its first call, at 94.9 %."""
    monkeypatch.setattr(large, "dive_at_prices", lambda *_: None)
    case, noise, rules = bench.Case.IDLE, bench.Noise.PAIR, bench.Demands.RULES
    program = program_of(bench.snapshot(512, case, noise, 0, demands=rules))
    solution = solve(program, 0.01, inf, solver=lambda *_: Answer())
    assert solution.status is PlanStatus.WITHIN_GAP


def _script(path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.parametrize(
    "body", ["kill -9 $$", "exit 3", "echo gibberish", "kill -SEGV $$", "exec sleep 60", ""]
)
def test_a_broken_cbc_leaves_the_best_known_plan_in_time(
    body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = _script(tmp_path / "cbc", body) if body else str(tmp_path / "nothing")
    monkeypatch.setattr(cbc, "binary", lambda: path)
    instance = snapshot(1)
    settings = PlanSettings(gap=0.0, time_limit_seconds=5.0)
    result = in_time(lambda: plan(instance, settings), 5.0 * 1.2)
    assert_holds(instance, result)
    assert result.placements
    assert "the solver gave no usable answer" in caplog.text
    assert result.status in {PlanStatus.FALLBACK, PlanStatus.OPTIMAL}
    assert 0.0 <= result.gap < 0.5


def test_cbc_without_an_integer_solution_gives_no_answer() -> None:
    """2 x = 1 as two rows: the relaxation has x = 0.5, but no integer solution exists."""
    model = Model(
        objective=np.array([1.0, 1.0]),
        start=np.array([0, 2, 4]),
        row=np.array([0, 1, 0, 1]),
        factor=np.array([2.0, -2.0, 2.0, -2.0]),
        upper=np.array([1.0, -1.0]),
        bound=np.array([1.0, 1.0]),
    )
    assert cbc.solve(model, None, 0.0, 5.0).x is None


def _knapsacks() -> Model:
    rng = np.random.default_rng(3)
    columns, rows = 40, 8
    weight: Floats = rng.integers(1, 9, (columns, rows)).astype(np.float64)
    return Model(
        rng.random(columns),
        np.arange(columns + 1) * rows,
        np.tile(np.arange(rows), columns),
        weight.ravel(),
        np.full(rows, 40.0),
        np.ones(columns),
    )


@pytest.mark.parametrize("solver", [cbc.solve, highs.solve])
def test_a_solver_bounds_its_answer(solver: Solve) -> None:
    model = _knapsacks()
    exact, loose = (solver(model, None, gap, 20.0, None) for gap in (0.0, 0.2))
    assert exact.x is not None
    assert loose.x is not None
    best, value = float(model.objective @ exact.x), float(model.objective @ loose.x)
    assert value <= best
    assert best <= exact.bound <= best * (1 + 1e-5)
    assert loose.bound >= best * (1 - 1e-6)


def test_highs_and_cbc_find_the_same_optimum() -> None:
    model = _knapsacks()
    values = []
    for solver in (cbc.solve, highs.solve):
        answer = solver(model, None, 0.0, 20.0)
        assert answer.x is not None
        values.append(float(model.objective @ np.round(answer.x)))
    assert values[0] == pytest.approx(values[1])


@pytest.mark.parametrize("body", ["kill -9 $$", "exit 3", "echo gibberish", "exec sleep 60"])
def test_a_highs_that_dies_or_hangs_gives_no_answer_in_time(
    body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", _script(tmp_path / "python", body))
    assert in_time(lambda: highs.solve(_knapsacks(), None, 0.0, 1.0), 5.0).x is None

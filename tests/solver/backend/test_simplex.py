"""Sequences of linear programs: each is solved to optimality whatever basis it starts from."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hopsd.errors import SolverError
from hopsd.solver.backend import simplex
from hopsd.solver.backend.linear import Constraints, minimise
from hopsd.solver.backend.simplex import Simplex


@pytest.fixture(params=["highspy", "scipy"])
def solver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Simplex:
    """Each solver that an installation may have."""
    if request.param == "scipy":
        monkeypatch.setattr(simplex, "find_spec", lambda _: None)
    else:
        pytest.importorskip("highspy")
    return Simplex()


def _random(rng: np.random.Generator, columns: int, rows: int) -> Constraints:
    is_entry = rng.random((rows, columns)) < 0.4
    is_entry[0] = True  # or the program would be unbounded
    row, column = np.nonzero(is_entry)
    amount = rng.integers(1, 9, len(row)).astype(np.float64)
    return Constraints(row, column, amount, rng.integers(1, 20, rows).astype(np.float64))


@pytest.mark.parametrize("seed", range(20))
def test_each_program_of_a_sequence_is_solved_to_optimality(solver: Simplex, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(4):
        columns = np.sort(rng.choice(40, int(rng.integers(2, 30)), replace=False))
        rows = rng.permutation(20)[: int(rng.integers(1, 15))]
        cost, constraints = -rng.random(len(columns)), _random(rng, len(columns), len(rows))
        optimum = solver.minimise(cost, constraints, columns.tolist(), rows.tolist(), np.inf)
        assert optimum is not None
        reference = minimise(cost, constraints, np.full(len(columns), np.inf))
        assert reference is not None
        assert optimum.objective == pytest.approx(reference.objective)
        # By duality, the prices prove the optimum.
        assert optimum.prices.min() >= -1e-9
        assert -optimum.prices @ constraints.limit == pytest.approx(reference.objective)
        assert cost @ optimum.x == pytest.approx(reference.objective)


def test_an_infeasible_program_has_no_optimum(solver: Simplex) -> None:
    single_entry = np.zeros(1, dtype=np.int64)
    assert (
        solver.minimise(
            np.ones(1),
            Constraints(single_entry, single_entry, np.ones(1), -np.ones(1)),
            [0],
            [0],
            np.inf,
        )
        is None
    )


def test_an_unbounded_program_is_an_error(solver: Simplex) -> None:
    single_entry = np.zeros(1, dtype=np.int64)
    constraints = Constraints(single_entry, single_entry, -np.ones(1), np.ones(1))
    with pytest.raises(SolverError):
        solver.minimise(-np.ones(1), constraints, [0], [0], np.inf)


def test_a_second_attempt_gets_the_remaining_time(monkeypatch: pytest.MonkeyPatch) -> None:
    highspy = pytest.importorskip("highspy")
    now, time_limits = [100.0], []
    status = highspy.HighsModelStatus

    def run(_module: Any, _lp: Any, _basis: Any, seconds: float) -> Any:
        time_limits.append(seconds)
        now[0] += 4.0
        return SimpleNamespace(getModelStatus=lambda: status.kUnknown)

    monkeypatch.setattr(simplex, "_run", run)
    monkeypatch.setattr(simplex, "monotonic", lambda: now[0])
    single_entry = np.zeros(1, dtype=np.int64)
    with pytest.raises(SolverError):
        Simplex().minimise(
            np.ones(1),
            Constraints(single_entry, single_entry, np.ones(1), np.ones(1)),
            [0],
            [0],
            5.0,
        )
    assert time_limits == [5.0, 1.0]

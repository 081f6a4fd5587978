"""What the last lines of CBC's output prove."""

from __future__ import annotations

import numpy as np
import pytest

from hopsd.solver.backend.cbc import read_bound

OPTIMAL = "Result - Optimal solution found\n\nObjective value:                -39.50000000\n"
GAP_LOG = (
    "Result - Optimal solution found (within gap tolerance)\n\n"
    "Objective value:                -39.50000000\nLower bound:                    -39.700\n"
)
STOP_LOG = "Cbc0011I Exiting as integer gap of 0.1 less than 1e-10 or 0.5%\n"


def test_an_optimum_is_its_own_bound() -> None:
    assert read_bound(OPTIMAL, 0.005) == pytest.approx(39.5, rel=2e-6)


def test_a_printed_bound_counts_to_its_last_digit() -> None:
    assert 39.7 <= read_bound(STOP_LOG + GAP_LOG, 0.005) < 39.701


def test_a_search_that_ended_at_the_gap_proves_only_the_gap() -> None:
    assert read_bound(STOP_LOG + OPTIMAL, 0.005) >= 39.5 / 0.995


def test_no_output_proves_nothing() -> None:
    assert read_bound("", 0.005) == np.inf
    assert read_bound("Result - Optimal solution found\n\nObjective value: none\n", 0.0) == np.inf

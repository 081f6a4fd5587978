"""Snapshots too large to try every plan: the planner against HiGHS on the program as written."""

from __future__ import annotations

import json

import numpy as np
import pytest
from exhaustive_reference import Reference
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_matrix
from small_snapshots import Json, medium_snapshot

from hopsd.formats.plan import plan_json
from hopsd.formats.snapshot import read_snapshot
from hopsd.policies.hops.policy import plan


def optimum(reference: Reference) -> float:
    """Eq. 11 to 13, with one binary variable per configuration."""
    program, idle = reference.program(), reference.idle()
    row_of = {name: len(program) + i for i, name in enumerate(idle)}
    values, rows, cols, factors = [], [], [], []
    for i, (_, weight, columns) in enumerate(program):
        for column in columns:
            entries = {i: 1} | {row_of[name]: gpus for name, gpus in column.placement}
            rows += list(entries)
            factors += list(entries.values())
            cols += [len(values)] * len(entries)
            values.append(float(weight * column.gain))
    if not values:
        return 0.0
    matrix = coo_matrix((factors, (rows, cols)), shape=(len(program) + len(idle), len(values)))
    limits = np.array([1] * len(program) + list(idle.values()))
    solution = milp(
        -np.array(values),
        integrality=np.ones(len(values)),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(matrix.tocsr(), ub=limits),
        options={"mip_rel_gap": 0.0},
    )
    assert solution.success
    return -float(solution.fun)


@pytest.mark.parametrize("seed", range(25))
def test_a_gap_of_0_gives_the_optimum(seed: int) -> None:
    doc: Json = medium_snapshot(seed)
    document = plan_json(plan(*read_snapshot(json.dumps(doc))))
    reference = Reference(doc)
    best, value = optimum(reference), float(reference.objective(document["placements"]))
    assert value == pytest.approx(best, rel=1e-6)
    assert document["upper_bound"] >= value * (1 - 1e-9)
    assert document["configurations"] == sum(len(c) for _, _, c in reference.program())
    assert reference.jobs_that_fit(document["placements"]) == []

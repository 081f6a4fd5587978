"""Which nodes explain slow jobs on several nodes, compared with least squares."""

from __future__ import annotations

import numpy as np
import pytest

from hopsd.health.blame import _Jobs, find_suspects
from hopsd.health.measurements import KINDS, Units
from hopsd.health.robust import Floats

NODES, NOISE = 12, 0.004
SLOW = {2: 0.08, 5: 0.05, 9: 0.03}


def site(seed: int) -> Units:
    """Simulate jobs of four workloads, each on two or three nodes."""
    random = np.random.default_rng(seed)
    targets = tuple(
        tuple(sorted(random.choice(NODES, int(random.integers(2, 4)), replace=False).tolist()))
        for _ in range(120)
    )
    count = len(targets)
    cells, ones = random.integers(0, 4, count), np.ones(count)
    losses = np.array([max(SLOW.get(node, 0.0) for node in nodes) for nodes in targets])
    places = np.arange(count)
    return Units(
        value=cells + losses + random.normal(0.0, NOISE, count),
        variance=NOISE**2 * ones,
        wander=np.zeros(count),
        freedom=100.0 * ones,
        records=5 * np.ones(count, np.int64),
        time=3600.0 * places,
        middle=3600.0 * places,
        run=places,
        cell=cells,
        kind=np.zeros(count, np.int64),
        program=np.zeros(count, np.int64),
        target=places,
        targets=targets,
        cells=4,
        alone=np.full(4, -1),
    )


def explained(units: Units, nodes: list[int]) -> tuple[Floats, float]:
    """Return the nodes' slowness by least squares, and the weighted sum of squared residuals."""
    columns = [[float(n in units.targets[t]) for t in units.target.tolist()] for n in nodes]
    design = np.column_stack([np.eye(4)[units.cell], *columns])
    solution = np.linalg.lstsq(design, units.value, rcond=None)[0]
    return solution[4:], float(((units.value - design @ solution) ** 2).sum() / NOISE**2)


@pytest.mark.parametrize("seed", range(4))
def test_gains_equal_those_of_least_squares_given_earlier_suspects(seed: int) -> None:
    units = site(seed)
    jobs = _Jobs(units, units.value, np.zeros(KINDS), NODES)
    rest, suspects = jobs.unexplained(), list[int]()
    for suspect in (2, 5, 9):
        slowness, gain = jobs.gains(rest)
        before = explained(units, suspects)[1]
        for node in set(range(NODES)) - set(suspects):
            solution, after = explained(units, [*suspects, node])
            assert slowness[node] == pytest.approx(solution[-1], abs=1e-9)
            if solution[-1] > 0.0:
                assert gain[node] == pytest.approx(before - after, rel=1e-6, abs=1e-6)
        rest = jobs.explain(rest, suspect)
        suspects.append(suspect)
    assert jobs.gains(rest)[1][[2, 5, 9]].tolist() == [0.0] * 3


@pytest.mark.parametrize("seed", range(4))
def test_slow_nodes_are_suspected_slowest_first(seed: int) -> None:
    units = site(seed)
    suspects = find_suspects(units, units.value, np.zeros(KINDS), NODES)
    assert list(suspects)[:2] == [2, 5]
    assert set(suspects) <= set(SLOW)


def test_no_healthy_node_is_suspected() -> None:
    units = site(1)
    value = np.random.default_rng(2).normal(0.0, NOISE, len(units))
    assert find_suspects(units, value, np.zeros(KINDS), NODES) == {}

"""How much runs change their speed by themselves, without any fault of their nodes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hopsd.health.measurements import ALONE, Units, join_blocks, read_columns
from hopsd.health.records import HealthNode, HealthRecords, SpeedRecord
from hopsd.health.robust import Floats
from hopsd.health.swings import Swings, find_swings, lasting
from hopsd.model.ids import GpuType, JobId, NodeName, WorkloadName

NODES, MINUTES, NOISE = 12, 600, 0.01

Speed = Callable[[int, Floats], Floats]


NEVER = -1e9


def units_of(loss: Speed) -> Units:
    """Simulate a run on each node, of two workloads by turns, with a report a minute.

    ``loss`` returns by how much the run on a node is slower in each minute (a logarithm).
    """
    random = np.random.default_rng(1)
    nodes = tuple(HealthNode(NodeName(f"n{i}"), GpuType("a"), 4) for i in range(NODES))
    minutes = np.arange(MINUTES, dtype=np.float64)
    records = tuple(
        SpeedRecord(
            60.0 * minute,
            WorkloadName(f"w{number % 2}"),
            JobId(str(number)),
            {node.name: 4},
            float(np.exp(value)),
        )
        for number, node in enumerate(nodes)
        for minute, value in zip(
            minutes.tolist(),
            loss(number, minutes) + random.normal(0.0, NOISE, MINUTES),
            strict=True,
        )
    )
    columns = read_columns(HealthRecords(60.0 * MINUTES, nodes, records))
    return join_blocks(columns.steady(), 60.0 * MINUTES)


def swings_of(loss: Speed) -> tuple[Swings, dict[str, int]]:
    """Return the swings of such runs, and the program of each workload."""
    units = units_of(loss)
    programs = {f"w{node % 2}": int(units.program[units.target == node][0]) for node in range(2)}
    return find_swings(units, units.value, lasting(units)), programs


def test_independent_reports_keep_their_variance() -> None:
    swings, programs = swings_of(lambda node, minutes: 0.0 * minutes)
    assert swings.factor == pytest.approx(1.0, abs=0.1)
    assert not swings.usual(programs["w0"], ALONE, 0, 0.03, NEVER)


def test_reports_of_an_alternating_run_count_as_few_observations() -> None:
    """Each half lasts 90 minutes, so ten hours hold about seven observations, not 600."""
    swings, programs = swings_of(
        lambda node, minutes: 0.1 * (np.floor(minutes / 90.0 + 0.3 * node) % 2.0)
    )
    independent = MINUTES / (swings.factor.max() * (0.05 / NOISE) ** -2.0)
    assert 2.0 < independent < 20.0
    assert swings.usual(programs["w0"], ALONE, 0, 0.05, NEVER)
    assert not swings.usual(programs["w0"], ALONE, 0, 0.2, NEVER)


def test_one_alternating_workload_makes_no_change_of_another_usual() -> None:
    swings, programs = swings_of(
        lambda node, minutes: 0.1 * (node % 2) * (np.floor(minutes / 90.0 + 0.3 * node) % 2.0)
    )
    assert swings.usual(programs["w1"], ALONE, 1, 0.05, NEVER)
    assert not swings.usual(programs["w0"], ALONE, 0, 0.05, NEVER)


def test_one_wandering_workload_does_not_widen_the_errors_of_others() -> None:
    """The runs on every second node change their speed every five minutes, or every hour."""
    for minutes_of_each in (5.0, 60.0):

        def wanders(node: int, minutes: Floats, each: float = minutes_of_each) -> Floats:
            pieces = np.random.default_rng(node).normal(0.0, 0.05, MINUTES)
            return node % 2 * pieces[(minutes // each).astype(np.int64)]

        units = units_of(wanders)
        blocks = (units.variance * lasting(units))[units.records == 5]
        is_wild = (units.target % 2 == 1)[units.records == 5]
        assert np.median(blocks[~is_wild]) == pytest.approx(NOISE**2 / 5.0, rel=0.3)
        assert np.median(blocks[is_wild]) > 0.5 * 0.05**2


def test_a_workload_with_few_runs_is_judged_by_the_others() -> None:
    swings, _ = swings_of(lambda node, minutes: 0.1 * (np.floor(minutes / 90.0 + 0.3 * node) % 2.0))
    new = swings.program.max() + 1
    assert swings.usual(new, ALONE, 0, 0.05, NEVER)
    assert not swings.usual(new, ALONE, 0, 0.2, NEVER)


def swings_of_programs(runs: dict[int, tuple[int, int]]) -> Swings:
    """Return the swings of programs with (changed, steady) ``runs``, each run on another node."""
    program = np.repeat(list(runs), [sum(counts) for counts in runs.values()])
    node = np.concatenate([np.arange(sum(counts)) for counts in runs.values()])
    changed = np.concatenate([np.arange(sum(pair)) < pair[0] for pair in runs.values()])
    count = int(changed.sum())
    return Swings(
        factor=np.zeros(0),
        error=np.full(len(program), 0.005),
        program=program,
        kind=np.full(len(program), ALONE),
        node=node,
        size=np.full(count, 0.1),
        time=np.zeros(count),
        margin=np.full(count, 600.0),
        run=np.flatnonzero(changed),
    )


def test_one_swinging_program_of_many_says_little_of_a_program_with_few_runs() -> None:
    """A program that never ran elsewhere may swing, too."""
    swings = swings_of_programs({0: (5, 0)} | dict.fromkeys(range(1, 30), (0, 3)))
    assert swings.usual(0, ALONE, 99, 0.1, NEVER)
    assert not swings.usual(1, ALONE, 99, 0.1, NEVER)
    assert swings.usual(30, ALONE, 99, 0.1, NEVER)


@pytest.mark.parametrize(("swinging", "usual"), [(1, False), (30, True)])
def test_the_more_programs_swing_the_less_steady_runs_say(swinging: int, *, usual: bool) -> None:
    """The runs of those that do change every third time."""
    runs = dict.fromkeys(range(swinging), (2, 4)) | dict.fromkeys(range(30, 60), (0, 8))
    assert swings_of_programs(runs).usual(30, ALONE, 99, 0.1, NEVER) is usual


def test_a_change_on_a_single_other_node_does_not_make_a_program_swing() -> None:
    """That node may be slow itself."""
    runs = {0: (5, 0), 1: (1, 12)} | dict.fromkeys(range(2, 9), (0, 5))
    assert not swings_of_programs(runs).usual(1, ALONE, 99, 0.1, NEVER)
    assert swings_of_programs(runs | {1: (2, 12)}).usual(1, ALONE, 99, 0.1, NEVER)


def test_servers_that_become_slow_together_do_not_make_the_change_usual() -> None:
    """The repair of one of them does not, either."""

    def loss(node: int, minutes: Floats) -> Floats:
        until = 400.0 if node == 1 else np.inf
        return np.where((minutes > 200.0) & (minutes < until) & (node < 3), 0.05, 0.0)

    swings, programs = swings_of(loss)
    assert not swings.usual(programs["w0"], ALONE, 0, 0.035, 12_000.0)
    assert not swings.usual(programs["w1"], ALONE, 1, 0.035, 12_000.0)
    assert swings.factor.max() < 2.0

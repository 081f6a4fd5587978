"""The matching gives the paper's numbers and, on small cases, those of exhaustive search."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopsd.solver.matching import Queues, match, positions

GPU, CPU = 0, 1


def test_the_example_of_section_3_1_is_reproduced() -> None:
    """Jobs 2 and 3 run on the GPU in that order, job 1 on the CPU: 17 in total."""
    schedule = match(Queues.build([[3, 4], [4, 6], [5, 10]], [GPU, CPU]))
    assert schedule.cost == 17
    assert schedule.machine.tolist() == [CPU, GPU, GPU]
    assert schedule.place.tolist() == [1, 2, 1]
    assert [schedule.first(GPU), schedule.first(CPU)] == [1, 0]


@pytest.mark.parametrize(
    ("seconds", "total"),
    [
        ([[40, 50], [40, 50], [40, 160], [40, 160]], 4 * 45),  # figure 4
        ([[10, 20], [10, 20], [20, 90], [20, 90]], 4 * 20),  # figure 5
        ([[10, 15], [8, 10], [10, 50], [5, 75], [10, 15], [10, 15]], 75),  # table 1 prints 76
    ],
)
def test_two_gpus_and_two_cpus_are_matched(seconds: list[list[float]], total: float) -> None:
    kind = [GPU, GPU, CPU, CPU]
    assert match(Queues.build(seconds, kind)).cost == total
    assert exhaustive(seconds, kind, [0.0] * 4, [0.0] * len(seconds)) == total


def test_the_wait_for_a_busy_machine_counts_from_arrival() -> None:
    """Figure 8: arrival at 4, free at 10, 5 to run: 11."""
    assert match(Queues.build([[5]], [GPU], ready=[10], arrival=[4])).cost == 11


def exhaustive(
    seconds: Sequence[Sequence[float]],
    kind: Sequence[int],
    ready: Sequence[float],
    arrival: Sequence[float],
) -> float:
    """Try every assignment of jobs to machines; on each machine the shortest job comes first."""
    best = np.inf
    for choice in product(range(len(kind)), repeat=len(seconds)):
        total = -sum(arrival)
        for machine in set(choice):
            end = ready[machine]
            run_seconds = [seconds[j][kind[machine]] for j, c in enumerate(choice) if c == machine]
            for run in sorted(run_seconds):
                end += run
                total += end
        best = min(best, total)
    return best


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[list[float]], list[int], list[float], list[float]]:
    """1 to 5 jobs, 1 to 3 machines of 2 kinds; some jobs run on one kind alone."""
    kind = draw(st.lists(st.integers(0, 1), min_size=1, max_size=3))
    times = st.integers(1, 20).map(float)
    seconds = []
    for _ in range(draw(st.integers(1, 5))):
        row = [draw(times), draw(times)]
        if len(set(kind)) == 2 and draw(st.booleans()):
            row[draw(st.integers(0, 1))] = np.inf
        seconds.append(row)
    ready = draw(st.lists(st.integers(0, 15).map(float), min_size=len(kind), max_size=len(kind)))
    arrival = [draw(st.integers(-9, 0).map(float)) for _ in seconds]
    return seconds, kind, ready, arrival


@pytest.mark.long
@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(cases())
def test_no_schedule_has_less_completion_time(
    case: tuple[list[list[float]], list[int], list[float], list[float]],
) -> None:
    seconds, kind, ready, arrival = case
    schedule = match(Queues.build(seconds, kind, ready, arrival))
    assert schedule.cost == pytest.approx(exhaustive(seconds, kind, ready, arrival))
    positions = list(zip(schedule.machine.tolist(), schedule.place.tolist(), strict=True))
    assert len(set(positions)) == len(positions)
    for machine, place in positions:
        assert place == 1 or (machine, place - 1) in positions, "a queue without a gap"


@given(st.lists(st.integers(0, 4).map(float), min_size=1, max_size=8), st.integers(1, 6))
def test_a_position_is_omitted_if_enough_others_are_equally_good(
    ready: list[float], jobs: int
) -> None:
    ranks, places = positions(np.array(ready), jobs)
    kept_positions = set(zip(ranks.tolist(), places.tolist(), strict=True))
    times = sorted(ready)
    all_positions = [(r, k) for r in range(len(times)) for k in range(1, jobs + 1)]
    for rank, place in all_positions:
        better = [
            (r, k)
            for r, k in all_positions
            if k <= place and times[r] <= times[rank] and (k < place or r < rank)
        ]
        assert ((rank, place) in kept_positions) == (len(better) < jobs)
    assert len(kept_positions) >= jobs


def test_many_equal_machines_need_only_as_many_positions_as_jobs() -> None:
    ranks, _ = positions(np.zeros(10_000), 1_000)
    assert len(ranks) == 1_000

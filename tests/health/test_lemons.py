"""Nodes that break jobs are named; nodes whose jobs fail by themselves are not."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from hopsd.health.lemons import ALPHA, find_lemons
from hopsd.health.records import EndState, HealthNode, HealthRecords, JobEnd
from hopsd.model.ids import GpuType, JobId, NodeName, WorkloadName

NOW = 1e6
DAY = 86_400.0


def records(ends: Iterable[JobEnd], now: float = NOW) -> HealthRecords:
    all_ends = tuple(ends)
    names = sorted({node for end in all_ends for node in end.nodes})
    return HealthRecords(now, tuple(HealthNode(n, GpuType("a"), 4) for n in names), (), all_ends)


def end(at: float, state: EndState, *nodes: str, workload: str = "w0") -> JobEnd:
    gpus_by_node = {NodeName(node): 4 for node in nodes}
    return JobEnd(at, JobId(str(at)), WorkloadName(workload), gpus_by_node, state)


def history(
    seed: int,
    *,
    count: int = 600,
    nodes: int = 12,
    lemon_nodes: tuple[str, ...] = (),
    state: EndState = EndState.LAUNCH_FAILED,
    several: int = 1,
) -> list[JobEnd]:
    """Simulate workloads that fail in 0 to 40 % of their runs; every third run on one of
    ``lemon_nodes`` ends in ``state``.
    """
    r = random.Random(seed)
    rates = [0.0, 0.02, 0.1, 0.4]
    ends = []
    for number in range(count):
        nodes_of_run = [f"n{i}" for i in r.sample(range(nodes), r.randint(1, several))]
        workload = r.randrange(len(rates))
        outcome = EndState.FAILED if r.random() < rates[workload] else EndState.COMPLETED
        if r.random() < 0.002:
            outcome = EndState.NODE_FAIL
        if set(nodes_of_run) & set(lemon_nodes) and r.random() < 1 / 3:
            outcome = state
        ends.append(end(NOW - DAY + 100 * number, outcome, *nodes_of_run, workload=f"w{workload}"))
    return ends


@pytest.mark.parametrize(
    "state", [EndState.LAUNCH_FAILED, EndState.NODE_FAIL, EndState.FAILED], ids=str
)
def test_only_the_node_that_breaks_every_third_run_is_named(state: EndState) -> None:
    for seed in range(5):
        lemons = find_lemons(records(history(seed, lemon_nodes=("n3",), state=state)))
        assert [lemon.node for lemon in lemons] == ["n3"], seed
        assert lemons[0].failures > 2 * lemons[0].expected
        assert lemons[0].p < ALPHA


@pytest.mark.slow
def test_healthy_nodes_are_rarely_named() -> None:
    false_alarms = sum(bool(find_lemons(records(history(seed)))) for seed in range(100))
    assert false_alarms <= 4  # 1 % are expected


def test_a_lemon_explains_the_failures_of_jobs_that_it_shares() -> None:
    ends = history(1, count=500, lemon_nodes=("n3",), several=4)
    for number in range(30):  # n4 is often in its jobs, and never fails without it
        state = EndState.LAUNCH_FAILED if number % 3 == 0 else EndState.COMPLETED
        ends.append(end(NOW - 40_000 + number, state, "n3", "n4"))
    assert [lemon.node for lemon in find_lemons(records(ends))] == ["n3"]


def test_two_lemons_are_both_named() -> None:
    lemons = find_lemons(records(history(2, lemon_nodes=("n3", "n7"))))
    assert {lemon.node for lemon in lemons} == {"n3", "n7"}


def test_a_workload_that_always_fails_is_no_evidence() -> None:
    ends = [end(NOW - DAY + i, EndState.COMPLETED, f"n{i % 9}") for i in range(200)]
    fails = [
        end(NOW - 1000 + i, EndState.FAILED, f"n{i % 2}", workload="broken") for i in range(20)
    ]
    assert find_lemons(records(ends + fails)) == ()


def test_a_workload_that_ran_nowhere_else_is_no_evidence() -> None:
    ends = [end(NOW - DAY + i, EndState.COMPLETED, f"n{i % 9}") for i in range(200)]
    ends += [end(NOW - 1000 + i, EndState.FAILED, "n0", workload="new") for i in range(20)]
    assert find_lemons(records(ends)) == ()


def test_repeated_starts_by_a_user_count_once() -> None:
    ends = [end(NOW - DAY + i, EndState.COMPLETED, f"n{i % 9}", workload="w") for i in range(90)]
    ends += [end(NOW - 1000 + i, EndState.FAILED, "n0", workload="w") for i in range(20)]
    assert find_lemons(records(ends)) == ()


def test_a_workload_that_fails_to_launch_everywhere_is_no_evidence() -> None:
    ends = [end(NOW - DAY + i, EndState.COMPLETED, f"n{i % 9}") for i in range(300)]
    ends += [
        end(NOW - 5000 + i, EndState.LAUNCH_FAILED, f"n{i % 9}", workload="bad image")
        for i in range(90)
    ]
    ends += [
        end(NOW - 900 + i, EndState.LAUNCH_FAILED, "n0", workload="bad image") for i in range(9)
    ]
    assert find_lemons(records(ends)) == ()


def test_failures_older_than_a_month_or_after_now_are_ignored() -> None:
    ends = history(3, lemon_nodes=("n3",))
    assert find_lemons(records(ends))
    assert find_lemons(records(ends, now=NOW + 31 * DAY)) == ()
    assert find_lemons(records(ends, now=NOW - DAY - 1)) == ()
    later_ends = [end(NOW + 1 + i, EndState.LAUNCH_FAILED, "n5") for i in range(50)]
    assert find_lemons(records([*ends, *later_ends])) == find_lemons(records(ends))


def test_a_single_node_is_not_judged() -> None:
    ends = [end(NOW - i, EndState.LAUNCH_FAILED, "n0") for i in range(20)]
    assert find_lemons(records(ends)) == ()


def test_without_ended_jobs_no_node_is_named() -> None:
    assert find_lemons(records([])) == ()

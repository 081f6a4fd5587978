"""Find which GPU of a server is slow, from jobs with a single GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from hopsd.health.gpus import find_slow_gpus
from hopsd.health.judge import judge
from hopsd.health.records import HealthNode, HealthRecords, SlowNode, SpeedRecord
from hopsd.health.slow import find_slow
from hopsd.model.ids import GpuType, JobId, NodeName, WorkloadName

NODES = tuple(HealthNode(NodeName(f"n{i}"), GpuType("a"), 4) for i in range(4))
RUN_SECONDS = 3600.0
SEEDS = (0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2)))
"""One site for each test, and two more for `make test-long`."""


def site(
    losses: Mapping[tuple[int, int], float],
    *,
    runs: int = 8,
    indices: bool = True,
    neighbour_loss: Callable[[int, int], float] = lambda node, number: 0.0,
    seed: int = 1,
) -> HealthRecords:
    """Simulate one run after the other on each GPU: a report every five minutes with noise of 2 %,
    and 0.5 % between runs. ``neighbour_loss`` returns what neighbours cost on a node, given the
    run's number.
    """
    r = np.random.default_rng(seed)
    records = []
    for node in range(len(NODES)):
        for gpu in range(4):
            for number in range(runs):
                begin = number * 1.2 * RUN_SECONDS + 97.0 * gpu
                workload = int(r.integers(3))
                value = 0.1 * workload + r.normal(0.0, 0.005) + neighbour_loss(node, number)
                value -= np.log1p(-losses.get((node, gpu), 0.0))
                records += [
                    SpeedRecord(
                        at=begin + 300.0 * (i + 1),
                        workload=WorkloadName(f"w{workload}"),
                        job=JobId(f"{node}.{gpu}.{number}"),
                        nodes={NODES[node].name: 1},
                        seconds_per_iteration=float(np.exp(value + r.normal(0.0, 0.02))),
                        gpu=gpu if indices else None,
                    )
                    for i in range(12)
                ]
    return HealthRecords(runs * 1.2 * RUN_SECONDS + 1000.0, NODES, tuple(records))


def slow_gpus(slow: tuple[SlowNode, ...]) -> list[tuple[str, int | None]]:
    return [(node.node, node.gpu) for node in slow]


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_slow_gpu_is_named_instead_of_its_server(seed: int) -> None:
    records = site({(2, 1): 0.05}, seed=seed)
    assert slow_gpus(judge(records).slow) == [("n2", 1)]
    (slow,) = find_slow_gpus(records)
    assert slow.low <= 0.95 <= slow.high


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_nodes_and_gpus_judged_together_get_the_same_verdicts_as_apart(seed: int) -> None:
    """`judge` finds runs and neighbours once for both."""
    records = site(
        {(2, 1): 0.05, (3, 0): 0.08}, neighbour_loss=lambda n, _: 0.06 * (n == 0), seed=seed
    )
    assert judge(records).slow == (*find_slow(records), *find_slow_gpus(records))
    assert find_slow_gpus(records)


@pytest.mark.slow
def test_a_server_is_named_if_all_its_gpus_are_slow() -> None:
    records = site({(2, gpu): 0.06 for gpu in range(4)})
    assert slow_gpus(judge(records).slow) == [("n2", None)]


@pytest.mark.slow
def test_a_loss_that_neighbours_cause_on_all_gpus_names_none() -> None:
    """The jobs of one server read more from its disk."""
    assert find_slow_gpus(site({}, neighbour_loss=lambda node, _: 0.06 * (node == 1))) == ()


@pytest.mark.parametrize("seed", SEEDS)
def test_no_gpu_of_a_healthy_site_is_named(seed: int) -> None:
    assert find_slow_gpus(site({}, seed=seed)) == ()


def test_gpus_without_an_index_are_not_judged() -> None:
    records = site({(2, 1): 0.1}, indices=False)
    assert find_slow_gpus(records) == ()

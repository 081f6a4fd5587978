"""The auction against exhaustive search, and properties of its payments."""

from __future__ import annotations

from itertools import product
from math import exp, log
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopsd.core.placement.available import AvailableResources
from hopsd.core.placement.configurations import Configurations
from hopsd.core.placement.generate import generate
from hopsd.core.placement.program import Program
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, Node, ThroughputTable
from hopsd.policies.themis.auction import after_payment, auction, program_of

A = GpuType("a")


def bids(servers: list[int], counts: list[tuple[int, ...]]) -> tuple[Configurations, np.ndarray]:
    nodes = [Node(NodeName(f"n{i}"), A, gpus, gpus) for i, gpus in enumerate(servers)]
    table = {A: ThroughputTable({1: 1.0}, {2: 0.8})}
    jobs = [
        Job(JobId(str(i)), UserName("u"), 0.0, 0.0, counts_of_job, table)
        for i, counts_of_job in enumerate(counts)
    ]
    idle = np.array(servers, dtype=np.int64)
    return generate(
        jobs, AvailableResources.idle(nodes), [0.0] * len(jobs), sigma=1.0, keep_present=False
    ), idle


def made_up(seed: int) -> Program:
    """Return up to four apps on up to three servers, with made-up values of the bids."""
    rng = Random(seed)
    servers = [rng.randint(1, 4) for _ in range(rng.randint(1, 3))]
    apps = rng.randint(1, 4)
    counts = [tuple(sorted(rng.sample(range(1, 6), rng.randint(1, 3)))) for _ in range(apps)]
    columns, idle = bids(servers, counts)
    worth = np.array([rng.choice([0.0, log(2), rng.uniform(0, 3)]) for _ in range(len(columns))])
    return program_of(columns, idle, worth)


def best_of_all(program: Program, excluded_app: int | None = None) -> float:
    """Return the largest value of any choice; ``excluded_app`` does not take part."""
    columns = program.configurations
    options = [
        [-1] if i == excluded_app else [-1, *range(columns.start[i], columns.start[i + 1])]
        for i in range(columns.jobs)
    ]
    return max(
        program.scaled_objective(np.array(choice))
        for choice in product(*options)
        if program.feasible(np.array(choice))
    )


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**9))
def test_winners_and_payments_equal_exhaustive_search(seed: int) -> None:
    program = made_up(seed)
    outcome = auction(program, 0.0, 10.0)
    assert program.feasible(outcome.choice)
    assert outcome.worth == pytest.approx(best_of_all(program))
    assert outcome.bound >= outcome.worth * (1 - 1e-9)
    for app, (column, kept_share) in enumerate(
        zip(outcome.choice, outcome.kept_share, strict=True)
    ):
        if column < 0:
            assert kept_share == 1.0
            continue
        value_of_others = outcome.worth - float(program.value[column])
        assert kept_share == pytest.approx(
            min(1.0, exp(value_of_others - best_of_all(program, excluded_app=app)))
        )
        assert 0.0 < kept_share <= 1.0


def linear(servers: list[int], counts: list[tuple[int, ...]]) -> Program:
    """Return a program in which rho is inversely proportional to the GPUs of any placement."""
    columns, idle = bids(servers, counts)
    size = columns.shapes.sizes()[columns.shape]
    return program_of(columns, idle, np.log(10.0 * size))


def test_two_equal_bidders_keep_half_each() -> None:
    """Each takes 2 of 4 GPUs, which would double the other's progress."""
    outcome = auction(linear([4], [(1, 2, 3, 4)] * 2), 0.0, 10.0)
    assert outcome.worth == pytest.approx(2 * log(20))
    assert outcome.kept_share == pytest.approx([0.5, 0.5])


def test_no_bidder_pays_if_nobody_wants_more() -> None:
    outcome = auction(linear([4, 4], [(1, 2), (4,)]), 0.0, 10.0)
    assert outcome.kept_share.tolist() == [1.0, 1.0]


def test_payments_by_prices_are_close_to_those_by_programs() -> None:
    """Ten bidders are priced: each has 4 of 40 GPUs, which would give the others 1/9 more."""
    program = linear([8] * 5, [(1, 2, 4, 8)] * 10)
    assert len(program.value) > 100 or program.configurations.jobs > 8
    outcome = auction(program, 0.0, 10.0)
    assert outcome.worth == pytest.approx(10 * log(40))
    assert np.all((outcome.kept_share > 0.2) & (outcome.kept_share <= 1.0))


@pytest.mark.parametrize(
    ("win", "kept_share", "counts", "luck", "remainder"),
    [
        ({"a": 4}, 1.0, (1, 2, 4), 0.99, {"a": 4}),
        ({"a": 4}, 0.5, (1, 2, 4), 0.0, {"a": 2}),
        ({"a": 4}, 0.6, (1, 2, 4), 0.19, {"a": 4}),
        ({"a": 4}, 0.6, (1, 2, 4), 0.21, {"a": 2}),
        ({"a": 4}, 0.01, (2, 4), 0.99, {"a": 2}),
        ({"a": 4}, 0.01, (4,), 0.99, {"a": 4}),
        ({"a": 2, "b": 4}, 0.5, (3, 6), 0.5, {"b": 3}),
        ({"a": 2, "b": 4}, 0.8, (4, 5, 6), 0.5, {"a": 1, "b": 4}),
    ],
)
def test_a_payment_leaves_a_count_that_the_job_accepts(
    win: dict[str, int],
    kept_share: float,
    counts: tuple[int, ...],
    luck: float,
    remainder: dict[str, int],
) -> None:
    assert after_payment(Allocation.of(win), kept_share, counts, luck) == Allocation.of(remainder)


@settings(deadline=None)
@given(st.floats(0.25, 1.0), st.sets(st.integers(1, 8), min_size=1))
def test_payments_are_right_on_average(kept_share: float, counts: set[int]) -> None:
    """The mean is over all values of luck, if the share is not below the smallest count."""
    win = Allocation.of({"a": 8})
    counts_after = [
        after_payment(win, kept_share, sorted(counts), (i + 0.5) / 500).gpus for i in range(500)
    ]
    assert sum(counts_after) / 500 == pytest.approx(max(kept_share * 8, min(counts)), abs=0.02)

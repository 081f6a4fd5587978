"""Fair share and QOS in the queue: off by default; a product, or first of all."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from queued_jobs import NODES, T4, V100, job, snapshot, urgency

from hopsd.core.queue.priority import LEAST_FACTOR, LEVELS, OVERDUE_PART, overdue, queue
from hopsd.model.allocation import Allocation
from hopsd.model.cluster import Node
from hopsd.model.ids import NodeName, UserName
from hopsd.model.plan import PlanSettings, PriorityName, RoundInfo, Snapshot
from hopsd.model.rules import Rules, ShapeRule

FACTORS = st.floats(0.0, 1.0)
WAITS = st.floats(0.0, 1e7)


def test_accounts_count_for_nothing_by_default() -> None:
    one, other = job("1", share=0.1, qos_weight=0.1), job("2")
    assert urgency(PlanSettings().priority, one, other) == urgency(
        PriorityName.LATENCY_RATIO, job("1"), job("2")
    )


def test_a_product_weighs_the_latency_ratio_and_starves_nobody() -> None:
    ratio, most = urgency(PriorityName.FAIR_SHARE, job("1", share=0.5), job("2", share=1.0))
    assert ratio == most / 2
    jobs = job("1", qos_weight=0.0), job("2", qos_weight=LEAST_FACTOR)
    none, least = urgency(PriorityName.QOS, *jobs)
    assert none == least > 0
    waited = job("1", share=0.0, wait_seconds=600.0 * 1.01 / LEAST_FACTOR)
    late, soon = urgency(PriorityName.FAIR_SHARE, waited, job("2", share=1.0))
    assert late > soon


@given(FACTORS, FACTORS, WAITS, WAITS)
def test_what_comes_first_comes_first(one: float, other: float, wait: float, long: float) -> None:
    for name, key in (
        (PriorityName.FAIR_SHARE_FIRST, "share"),
        (PriorityName.QOS_FIRST, "qos_weight"),
    ):
        jobs = [
            replace(job("1", wait_seconds=wait), **{key: one}),  # type: ignore[arg-type]
            replace(job("2", wait_seconds=long), **{key: other}),  # type: ignore[arg-type]
        ]
        settings = PlanSettings(priority=name, overdue_ratio=math.inf)
        order = [j.id for j in queue(snapshot(*jobs), settings).jobs]
        if round(one * LEVELS) != round(other * LEVELS):
            assert order[0] == ("1" if one > other else "2")


LATE = 3600.0 * 24.0
"""Some dozen times the run time of a job that takes half an hour."""


@given(FACTORS, FACTORS)
def test_who_waited_for_too_long_comes_before_shares(own: float, others: float) -> None:
    late = job("9", user=UserName("late"), share=own, age_seconds=1800.0, wait_seconds=LATE)
    soon = [job(str(n), share=others, age_seconds=1800.0) for n in range(3)]
    settings = PlanSettings(priority=PriorityName.FAIR_SHARE_FIRST)
    assert queue(snapshot(*soon, late), settings).jobs[0].id == "9"
    other = replace(settings, priority=PriorityName.FAIR_SHARE)
    assert queue(snapshot(late), other).priority["9"] < LATE


LATE_JOBS = st.lists(
    st.tuples(
        st.sampled_from("abcd"),
        st.floats(0.0, 5 * LATE),
        st.sampled_from([(1,), (1, 2), (2, 4)]),
        st.integers(0, 2),
        st.sampled_from([None, 5.0]),
    ),
    max_size=8,
)


@given(LATE_JOBS, st.randoms(use_true_random=False))
def test_a_tenth_of_the_gpus_is_for_one_late_job_of_each_user(
    made: list[tuple[str, float, tuple[int, ...], int, float | None]], random: Random
) -> None:
    settings = PlanSettings(priority=PriorityName.FAIR_SHARE_FIRST)
    jobs = [
        job(
            str(n),
            user=UserName(user),
            wait_seconds=wait,
            age_seconds=1800.0,
            reqs=reqs,
            running=Allocation.of({NodeName("b"): gpus}) if gpus else Allocation(),
            priority=own,
        )
        for n, (user, wait, reqs, gpus, own) in enumerate(made)
    ]
    found = overdue(jobs, NODES, settings)
    late = {j.id: j for j in jobs if j.wait_seconds / 1800.0 > 10.0 and j.priority is None}
    assert found.keys() <= late.keys()
    assert bool(found) == bool(late)  # the largest server has 8 GPUs
    users = [late[one].user for one in found]
    assert len(users) == len(set(users))
    sizes = [max(late[one].running.gpus, *counts) for one, counts in found.items()]
    assert len(sizes) <= 1 or sum(sizes) <= OVERDUE_PART * sum(node.gpus for node in NODES)
    assert all(set(counts) <= set(late[one].reqs) for one, counts in found.items())
    if any(j.running for j in late.values()):
        assert any(late[one].running for one in found)
    random.shuffle(jobs)
    assert overdue(jobs, NODES, settings) == found


LARGE = [Node(NodeName(f"n{n}"), V100, 8, 8) for n in range(64)]
"""512 GPUs, of which overdue jobs may have 51."""


@given(
    st.lists(
        st.tuples(
            st.sets(st.sampled_from([1, 8, 32, 48, 64, 512]), min_size=1),
            st.sampled_from([0, 8, 64]),
            st.floats(20.0, 1e6),
        ),
        max_size=6,
    )
)
def test_overdue_jobs_never_have_more_than_their_part(
    made: list[tuple[set[int], int, float]],
) -> None:
    settings = PlanSettings(priority=PriorityName.FAIR_SHARE_FIRST)
    jobs = [
        job(
            str(n),
            user=UserName(str(n)),
            reqs=tuple(sorted(reqs)),
            age_seconds=3600.0,
            wait_seconds=3600.0 * ratio,
            share=0.0,
            running=Allocation.of({NodeName("n1"): gpus}) if gpus else Allocation(),
        )
        for n, (reqs, gpus, ratio) in enumerate(made)
    ]
    other = job("other", share=1.0)
    at = Snapshot(1000.0, RoundInfo(True, 1800.0), tuple(LARGE), (*jobs, other))
    order = queue(at, settings).jobs
    first = order[: [j.id for j in order].index(other.id)]
    assert sum(max(j.reqs) for j in first) <= OVERDUE_PART * 512
    assert sum(j.running.gpus for j in first) <= OVERDUE_PART * 512
    if any(min(j.reqs) <= 48 and j.running.gpus <= 48 for j in jobs):
        assert first


@given(st.floats(1.0, 1e6), st.floats(0.0, 5999.0))
def test_a_claim_of_few_samples_makes_nobody_overdue(samples: float, wait: float) -> None:
    settings = PlanSettings(priority=PriorityName.FAIR_SHARE_FIRST)
    claims = job("1", samples=samples, reqs=(1,), wait_seconds=wait)
    assert not overdue([claims], NODES, settings)
    late = replace(claims, samples=1.0, wait_seconds=6001.0)
    assert overdue([late], NODES, settings) == {"1": (1,)}


def test_an_overdue_job_has_a_count_that_its_rules_allow() -> None:
    settings = PlanSettings(priority=PriorityName.FAIR_SHARE_FIRST)
    rules = Rules(shape=ShapeRule.EVEN, per_node=8, min_gpus=((T4, 9), (V100, 32)))
    late = job("1", reqs=(4, 8, 32, 64), rules=rules, age_seconds=60.0, wait_seconds=LATE)
    assert overdue([late], LARGE, settings)["1"] == (32,)
    assert not overdue([replace(late, reqs=(8, 64))], LARGE, settings)

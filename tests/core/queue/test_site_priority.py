"""Fair share and QOS in the queue: off by default; a product, or first of all."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from queued_jobs import NODES, job, snapshot, urgency

from hopsd.core.queue.priority import LEAST_FACTOR, LEVELS, OVERDUE_PART, overdue, queue
from hopsd.model.allocation import Allocation
from hopsd.model.ids import NodeName, UserName
from hopsd.model.plan import PlanSettings, PriorityName

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
    assert found <= late.keys()
    assert bool(found) == bool(late)
    users = [late[one].user for one in found]
    assert len(users) == len(set(users))
    sizes = [late[one].running.gpus or max(late[one].reqs) for one in found]
    assert sum(sizes) - max(sizes, default=0) < OVERDUE_PART * sum(node.gpus for node in NODES)
    if any(j.running for j in late.values()):
        assert any(late[one].running for one in found)
    random.shuffle(jobs)
    assert overdue(jobs, NODES, settings) == found

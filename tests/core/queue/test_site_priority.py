"""Fair share and QOS in the queue: off by default, as a product, or before all else."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from queued_jobs import job, snapshot, urgency

from hopsd.core.queue.priority import LEVELS, MIN_FACTOR, queue
from hopsd.model.plan import PlanSettings, PriorityName

FACTORS = st.floats(0.0, 1.0)
WAITS = st.floats(0.0, 1e7)


def test_accounts_are_ignored_by_default() -> None:
    low_share, full_share = job("1", share=0.1, qos_weight=0.1), job("2")
    assert urgency(PlanSettings().priority, low_share, full_share) == urgency(
        PriorityName.LATENCY_RATIO, job("1"), job("2")
    )


def test_a_product_weighs_the_latency_ratio_and_starves_no_job() -> None:
    ratio, full_priority = urgency(
        PriorityName.FAIR_SHARE, job("1", share=0.5), job("2", share=1.0)
    )
    assert ratio == full_priority / 2
    jobs = job("1", qos_weight=0.0), job("2", qos_weight=MIN_FACTOR)
    zero_weight, least_weight = urgency(PriorityName.QOS, *jobs)
    assert zero_weight == least_weight > 0
    waited_job = job("1", share=0.0, wait_seconds=600.0 * 1.01 / MIN_FACTOR)
    late_priority, soon_priority = urgency(PriorityName.FAIR_SHARE, waited_job, job("2", share=1.0))
    assert late_priority > soon_priority


@given(FACTORS, FACTORS, WAITS, WAITS)
def test_share_or_qos_decides_before_the_latency_ratio(
    value: float, other_value: float, wait: float, long: float
) -> None:
    for name, key in (
        (PriorityName.FAIR_SHARE_FIRST, "share"),
        (PriorityName.QOS_FIRST, "qos_weight"),
    ):
        jobs = [
            replace(job("1", wait_seconds=wait), **{key: value}),  # type: ignore[arg-type]
            replace(job("2", wait_seconds=long), **{key: other_value}),  # type: ignore[arg-type]
        ]
        settings = PlanSettings(priority=name, overdue_ratio=math.inf)
        order = [j.id for j in queue(snapshot(*jobs), settings).jobs]
        if round(value * LEVELS) != round(other_value * LEVELS):
            assert order[0] == ("1" if value > other_value else "2")

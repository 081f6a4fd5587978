"""GPUs that other jobs and reservations take and return, from a reading."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.reading import JobReading, NodeReading, Reading, SlurmState
from hopsd.model.site import Holder
from hopsd.predict.capacity import Capacity, PlainJob, capacity_of

NOW = 1000.0
NODE = NodeReading(NodeName("n0"), GpuType("t"), 4, 32)
PLAIN = Holder(
    JobId("9"), UserName("u"), "a", "q", "p", 3, 8,
    time_limit_seconds=600.0, start=900.0,
)  # fmt: skip


def reading(node: NodeReading, *jobs: JobReading, holders: tuple[Holder, ...] = ()) -> Reading:
    return Reading(NOW, (node,), jobs, other_holders=holders)


@pytest.mark.parametrize(
    ("node", "changes"),
    [
        (NODE, ()),
        (replace(NODE, reserved_from=1500.0), ((500.0, -4),)),
        (replace(NODE, reserved_from=1500.0, reserved_until=2500.0), ((500.0, -4), (1500.0, 4))),
        (replace(NODE, reservation="day", reserved_until=2500.0), ((0.0, -4), (1500.0, 4))),
        (
            replace(NODE, usable=False, reservation="maintenance", reserved_until=2500.0),
            ((1500.0, 4),),
        ),
        (replace(NODE, usable=False), ()),
    ],
)
def test_reservations_take_gpus_and_return_them(
    node: NodeReading, changes: tuple[tuple[float, int], ...]
) -> None:
    assert capacity_of(reading(node)) == Capacity(changes)


def test_a_reservation_that_a_job_requests_takes_nothing() -> None:
    job = JobReading(
        JobId("1"), UserName("u"), 1, "train", "hops:reqs=1", "p", SlurmState.PENDING, 0.0,
        reservation="day",
    )  # fmt: skip
    node = replace(NODE, reservation="day", reserved_until=2500.0)
    assert capacity_of(reading(node, job)) == Capacity()


def test_plain_jobs_count_on_hops_nodes_only() -> None:
    """Two of the job's three GPUs are on a node that hops does not schedule."""
    node = replace(NODE, foreign_gpus=1)
    assert capacity_of(reading(node, holders=(PLAIN,))).plain == (PlainJob(1, 100.0, 600.0),)
    assert capacity_of(reading(NODE, holders=(PLAIN,))).plain == ()
    endless = replace(PLAIN, time_limit_seconds=None)
    assert capacity_of(reading(node, holders=(endless,))).plain == ()

"""Figures that contradict each other by a whole factor are doubted; others are not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopsd.core.snapshot.doubts import doubtful_batch, doubts_of_job, whole_factor
from hopsd.core.submission.comment import parse
from hopsd.model.history import JobRecord
from hopsd.model.ids import GpuType, JobId, NodeName, UserName, WorkloadName
from hopsd.model.knowledge import ThroughputRecord
from hopsd.model.reading import SlurmState

RECORD = JobRecord(
    id=JobId("1"),
    user=UserName("anna"),
    name="a",
    comment="",
    workload=WorkloadName("w"),
    submit=0.0,
    seen=1.0,
    state=SlurmState.RUNNING,
    saved=False,
    samples_done=100.0,
)
SPEED = ThroughputRecord(
    WorkloadName("w"), GpuType("t"), NodeName("n"), 1, 1, per_gpu=80.0, at=1.0, batch=8.0
)


def notes(samples: float | None, record: JobRecord) -> list[str]:
    comment = parse("hops:reqs=1" if samples is None else f"hops:reqs=1;samples={samples:g}")
    return list(doubts_of_job(comment, record))


@pytest.mark.parametrize(
    ("planned_samples", "text"),
    [(4000, "4 times"), (250, "1/4 of"), (1000, ""), (1450, ""), (None, "")],
)
def test_planned_samples_that_are_a_multiple_of_the_declared_ones_are_doubted(
    planned_samples: float | None, text: str
) -> None:
    remarks = notes(1000, replace(RECORD, samples_planned=planned_samples))
    assert len(remarks) == bool(text)
    assert all(text in note and "batch=" in note for note in remarks)


@pytest.mark.parametrize(
    ("has_saved", "restarts", "is_doubted"),
    [(False, 0, True), (False, 2, True), (True, 0, True), (True, 1, False), (None, 0, False)],
)
def test_a_training_without_samples_is_named(
    has_saved: bool | None, restarts: int, is_doubted: bool
) -> None:
    record = replace(RECORD, saved=has_saved, restarts=restarts, samples_done=0.0)
    assert bool(notes(None, record)) == is_doubted
    assert not notes(None, replace(record, samples_done=1.0))


@pytest.mark.parametrize(
    ("time_known", "is_doubted"), [(False, True), (True, False), (None, False)]
)
def test_a_training_of_doubtful_time_is_told_why_it_has_no_speed(
    time_known: bool | None, is_doubted: bool
) -> None:
    remarks = notes(None, replace(RECORD, time_known=time_known))
    assert len(remarks) == is_doubted
    assert all("speed is unknown" in note and "eval()" in note for note in remarks)


@pytest.mark.parametrize(
    ("batch", "per_gpu", "is_doubted"),
    [
        (32.0, 320.0, True),  # four times the samples in the same time
        (2.0, 20.0, True),
        (8.0, 320.0, False),  # the same batch on a faster GPU
        (32.0, 160.0, False),  # a larger batch takes longer
        (12.0, 120.0, False),  # no whole factor
        (0.0, 320.0, False),  # unknown
    ],
)
def test_a_batch_that_jumps_at_constant_time_is_doubted(
    batch: float, per_gpu: float, is_doubted: bool
) -> None:
    later = replace(SPEED, batch=batch, per_gpu=per_gpu, at=2.0)
    assert bool(doubtful_batch([later, SPEED])) == is_doubted
    assert not doubtful_batch([SPEED, replace(later, gpus=2)])
    assert not doubtful_batch([SPEED, replace(later, user=UserName("bert"))])


@given(st.floats(allow_nan=True))
def test_only_ratios_near_a_whole_number_count(ratio: float) -> None:
    factor = whole_factor(ratio)
    if factor is not None:
        assert factor > 1
        assert max(ratio, 1 / ratio) == pytest.approx(factor, rel=0.03)

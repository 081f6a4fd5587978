"""Which runs belong to the same training."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from hopsd.core.submission.workload import workload_of
from hopsd.model.ids import JobId, UserName
from hopsd.model.reading import JobReading, SlurmState


def job(**changes: Any) -> JobReading:
    values: dict[str, Any] = {
        "id": JobId("1"),
        "user": UserName("alice"),
        "uid": 1000,
        "name": "resnet",
        "comment": "hops:reqs=1",
        "partition": "main",
        "state": SlurmState.PENDING,
        "submit": 1.0,
        "command": "/home/alice/train.sh --epochs 90",
        "script": "3f9a1c2e4b5d",
    }
    return JobReading(**values | changes)


def test_user_job_name_and_script_identify_a_workload() -> None:
    assert workload_of(job()) == "alice/resnet/train.sh@3f9a1c2e4b5d"
    assert workload_of(job(script="")) == "alice/resnet/train.sh"


@pytest.mark.parametrize(
    "change",
    [{"user": UserName("bob")}, {"name": "vgg"}, {"script": "000000000000"}],
)
def test_these_changes_make_another_workload(change: dict[str, Any]) -> None:
    assert workload_of(job(**change)) != workload_of(job())


@pytest.mark.parametrize(
    "change",
    [{"id": JobId("2")}, {"submit": 9.0}, {"restarts": 3}, {"command": "/scratch/train.sh"}],
)
def test_these_changes_make_no_other_workload(change: dict[str, Any]) -> None:
    assert workload_of(job(**change)) == workload_of(job())


def test_a_name_in_the_comment_decides_alone() -> None:
    assert workload_of(job(comment="hops:reqs=1;workload=resnet50")) == "resnet50"


def test_the_trained_program_makes_another_workload() -> None:
    first, second = "0123456789ab", "ba9876543210"
    assert workload_of(job(), first) == f"alice/resnet/train.sh@3f9a1c2e4b5d+{first}"
    assert len({workload_of(job(), program) for program in ("", first, second)}) == 3
    named_job = job(comment="hops:reqs=1;workload=resnet50")
    assert workload_of(named_job, first) == workload_of(named_job)


def test_an_invalid_comment_names_no_workload() -> None:
    assert workload_of(job(comment="hops:reqs=0;workload=resnet50")) == workload_of(job())


@pytest.mark.slow
def test_memory_stays_bounded_whatever_users_write() -> None:
    """Regression: refused comments of any length were kept, 65,536 of them."""
    tracemalloc.start()
    for number in range(50):
        workload_of(job(comment=f"hops:reqs={number}{'0' * 100_000}"))
    traced_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert traced_bytes < 1_000_000

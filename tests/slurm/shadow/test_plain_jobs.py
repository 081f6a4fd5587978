"""Plain jobs, as a shadow reads them."""

from __future__ import annotations

from typing import Any

import pytest

from hopsd.core.submission.comment import parse
from hopsd.model.ids import GpuType
from hopsd.model.reading import Hold
from hopsd.model.rules import ShapeRule
from hopsd.slurm.parse import is_hops_job, job_reading, known_jobs
from hopsd.slurm.shadow.plain import as_hops_job


def plain(**changes: Any) -> dict[str, Any]:
    return {
        "job_id": 17, "user_id": 1000, "user_name": "ann", "job_state": "PENDING", "priority": 42,
        "partition": "main", "submit_time": 100, "eligible_time": 100, "cpus": 16,
        "comment": "please hurry", "admin_comment": "", "tres_per_node": "gres:gpu:a100:2",
        "tres_req_str": "cpu=16,mem=8G,node=2,billing=16,gres/gpu=4,gres/gpu:a100=4",
    } | changes  # fmt: skip


def reading(job: dict[str, Any]) -> Any:
    job_record = as_hops_job(job)
    return job_reading(job_record, {}, known_jobs([job_record]))


def test_a_plain_job_requests_what_its_options_say_and_stays_in_place() -> None:
    job = reading(plain())
    request = parse(job.comment)
    assert (request.reqs, request.preempt) == ((4,), False)
    assert (job.options.shape, job.options.per_node) == (ShapeRule.EVEN, 2)
    assert (job.options.gpu_type, job.options.cores_per_gpu) == (GpuType("a100"), 4)
    assert job.hold is Hold.HOPS  # as the submit plugin holds hops jobs


def test_gpus_per_job_may_be_anywhere() -> None:
    job = reading(plain(tres_per_node="", tres_per_job="gres:gpu:4"))
    assert (job.options.shape, job.options.gpu_type) == (ShapeRule.ANY, None)


@pytest.mark.parametrize(
    ("changes", "gpus"),
    [
        ({"node_count": 3}, 6),
        ({"node_count": {"set": True, "infinite": False, "number": 3}}, 6),
        ({"tres_per_node": "", "tres_per_job": "gres/gpu:5"}, 5),
        ({"tres_per_node": "", "tres_per_task": "gres:gpu:2", "tasks": 4}, 8),
        ({"job_state": "RUNNING", "gres_detail": ["gpu:a100:3(IDX:0-2)", "gpu:a100:1(IDX:0)"]}, 4),
    ],
)
def test_gpus_are_taken_from_options_if_slurm_does_not_count_them(
    changes: dict[str, Any], gpus: int
) -> None:
    job = reading(plain(tres_req_str="cpu=1,node=1", **changes))
    assert parse(job.comment).reqs == (gpus,)


def test_a_job_held_by_a_person_stays_held() -> None:
    assert reading(plain(priority=0)).hold is Hold.USER
    assert reading(plain(job_state="RUNNING", priority=0)).hold is Hold.NONE


@pytest.mark.parametrize(
    "changes",
    [
        {"comment": "hops:reqs=1,2", "admin_comment": "hops:asks|shape:any"},
        {"tres_req_str": "cpu=16,node=1", "tres_per_node": ""},
        {"tres_req_str": "", "tres_per_node": "gres:nvme:1"},
        {"tres_req_str": "gres/gpu=99999999"},
        {"het_job_id": 3},
    ],
)
def test_other_jobs_are_not_converted(changes: dict[str, Any]) -> None:
    job = plain(**changes)
    assert as_hops_job(job) == job


def test_nothing_written_by_the_user_counts() -> None:
    job_record = as_hops_job(
        plain(comment="hop:reqs=64;preempt=yes #hops-profile", name="hops:reqs=9")
    )
    assert is_hops_job(job_record)
    assert job_record["comment"] == "hops:reqs=4;preempt=no"

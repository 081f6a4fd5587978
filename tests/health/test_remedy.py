"""Two witnesses must agree before a job is requeued."""

from __future__ import annotations

import pytest

from hopsd.health.hung import HungTraining
from hopsd.health.idle import IdleJob, PartialUse
from hopsd.health.remedy import NOTICE_SECONDS, RemedyDelays, remedies, shrinks
from hopsd.model.ids import JobId

JOB = JobId("17")
BOTH_DELAYS = RemedyDelays(hung=900.0, idle=3600.0)


def hung(seconds: float) -> dict[JobId, HungTraining]:
    return {JOB: HungTraining(JOB, 0.0, seconds, 20.0, 2, ())}


def idle(seconds: float) -> dict[JobId, IdleJob]:
    return {JOB: IdleJob(seconds, 0.0, 5)}


def test_a_hang_that_uses_processor_time_is_left_alone() -> None:
    assert remedies([JOB], hung(9e9), {}, BOTH_DELAYS) == ()


def test_a_hang_is_due_once_hang_and_idleness_have_lasted_for_the_delay() -> None:
    (remedy,) = remedies([JOB], hung(1000.0), idle(850.0), BOTH_DELAYS)
    assert remedy.due_in == 50.0
    (remedy,) = remedies([JOB], hung(1000.0), idle(900.0), BOTH_DELAYS)
    assert remedy.due_in == 0.0
    assert "no step and no other sign of life" in remedy.evidence
    assert "0 s of processor time" in remedy.evidence


def test_an_idle_job_is_announced_before_it_is_due() -> None:
    assert remedies([JOB], {}, idle(3599.0 - NOTICE_SECONDS), BOTH_DELAYS) == ()
    (remedy,) = remedies([JOB], {}, idle(3600.0 - NOTICE_SECONDS), BOTH_DELAYS)
    assert remedy.due_in == NOTICE_SECONDS
    (remedy,) = remedies([JOB], {}, idle(7200.0), BOTH_DELAYS)
    assert remedy.due_in == 0.0


@pytest.mark.parametrize("delays", [RemedyDelays(), RemedyDelays(hung=900.0)])
def test_remedies_that_are_off_do_nothing(delays: RemedyDelays) -> None:
    assert remedies([JOB], {}, idle(9e9), delays) == ()


def test_other_jobs_are_left_alone() -> None:
    assert remedies([JobId("18")], hung(9e9), idle(9e9), BOTH_DELAYS) == ()


def shrunk(
    reqs: tuple[int, ...], gpus_in_use: int = 2, idle_seconds: float = 3600.0, delay: float = 3600.0
) -> list[tuple[float, int | None]]:
    remedies = shrinks({JOB: reqs}, {JOB: PartialUse(gpus_in_use, 8, idle_seconds)}, delay)
    return [(remedy.due_in, remedy.gpus) for remedy in remedies]


def test_an_elastic_job_shrinks_to_the_smallest_count_that_is_enough() -> None:
    assert shrunk((1, 2, 4, 8)) == [(0.0, 2)]
    assert shrunk((1, 4, 8), gpus_in_use=3) == [(0.0, 4)]
    assert shrunk((1, 4, 8), idle_seconds=3600.0 - NOTICE_SECONDS) == [(NOTICE_SECONDS, 4)]


def test_a_job_that_cannot_run_on_fewer_gpus_is_not_shrunk() -> None:
    assert shrunk((8,)) == []
    assert shrunk((1, 8)) == []


def test_no_job_is_shrunk_without_both_witnesses_or_if_that_is_off() -> None:
    assert shrunk((2, 8), idle_seconds=0.0, delay=1.0) == []
    assert shrunk((2, 8), delay=0.0) == []
    assert shrunk((2, 8), idle_seconds=3600.0 - NOTICE_SECONDS - 1.0) == []
    assert shrinks({}, {JOB: PartialUse(2, 8, 9e9)}, 3600.0) == ()

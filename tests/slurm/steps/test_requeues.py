"""A person's `scontrol requeuehold` is a hold; hops' own requeues are not."""

from __future__ import annotations

import pytest
from fake_slurm import FakeSlurm
from slurm_contract import move, preempt, start, statuses

from hopsd.model.ids import JobId
from hopsd.model.reading import PROFILE_MARK, USER_HOLD_BEGIN, Hold, JobReading, SlurmState
from hopsd.model.step import OutcomeStatus
from hopsd.slurm.apply import SlurmPort
from hopsd.slurm.watch import ApplySettings


@pytest.fixture
def slurm() -> FakeSlurm:
    return FakeSlurm()


def resume_port(slurm: FakeSlurm, *waiting_jobs: JobId) -> SlurmPort:
    settings = ApplySettings(grace_seconds=1.0, poll_seconds=0.5, patience_seconds=60.0)
    port = SlurmPort(
        slurm, settings, clock=lambda: slurm.now, monotonic=lambda: slurm.now, sleep=slurm.sleep
    )
    port.resume([], waiting_jobs)
    return port


def job_as_read(port: SlurmPort, job: JobId) -> JobReading:
    return next(read for read in port.read().jobs if read.id == job)


def test_a_persons_requeuehold_stays_a_hold_for_the_next_hopsd(slurm: FakeSlurm) -> None:
    port, job = resume_port(slurm), slurm.running(1, n0=2)
    slurm.requeue_hold(job)
    assert job_as_read(port, job).hold is Hold.USER
    assert statuses(port.apply([start(job, n0=2)])) == [OutcomeStatus.FAILED]
    assert slurm.table[job].begin == USER_HOLD_BEGIN
    assert slurm.table[job].hold is Hold.USER


@pytest.mark.parametrize("kind", ["preempt", "move"])
def test_hops_clears_the_hold_of_its_own_requeues(slurm: FakeSlurm, kind: str) -> None:
    port, job = resume_port(slurm), slurm.running(1, n0=2)
    step = preempt(job) if kind == "preempt" else move(job, n1=2)
    assert statuses(port.apply([step])) == [OutcomeStatus.DONE]
    assert not slurm.table[job].requeued_held
    assert job_as_read(port, job).hold in (Hold.HOPS, Hold.NONE)


def test_a_job_that_requeues_itself_when_asked_to_leave_is_moved(
    slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It uses its own requeuehold, as hops_profiler.Checkpoint does."""
    port, job = resume_port(slurm), slurm.running(1, n0=2)
    signals: list[str] = []

    def signal(number: JobId, name: str, scope: object) -> None:
        if not signals:
            slurm.requeue_hold(number)
        signals.append(name)

    monkeypatch.setattr(slurm, "signal", signal)
    assert statuses(port.apply([move(job, n1=2)])) == [OutcomeStatus.DONE]
    assert signals
    assert job_as_read(port, job).hold is not Hold.USER


def test_a_persons_requeuehold_after_a_preemption_is_recognised(slurm: FakeSlurm) -> None:
    port, job = resume_port(slurm), slurm.running(1, n0=2)
    port.apply([preempt(job)])
    assert statuses(port.apply([start(job, n0=2)])) == [OutcomeStatus.DONE]
    slurm.requeue_hold(job)
    assert job_as_read(port, job).hold is Hold.USER


def test_a_mark_that_slurm_refused_is_set_again_later(slurm: FakeSlurm) -> None:
    port, job = resume_port(slurm), slurm.running(1, n0=2)
    slurm.requeue_hold(job)
    slurm.refuse.add("hold")
    assert job_as_read(port, job).hold is Hold.USER
    slurm.refuse.clear()
    assert job_as_read(port, job).hold is Hold.USER
    assert slurm.table[job].begin == USER_HOLD_BEGIN


def test_a_requeue_by_an_earlier_hopsd_is_not_a_hold(slurm: FakeSlurm) -> None:
    job = slurm.running(1, n0=2)
    slurm.requeue_hold(job)
    assert job_as_read(resume_port(slurm, job), job).hold is Hold.HOPS
    assert not slurm.table[job].requeued_held


def test_a_profile_run_that_ends_itself_is_not_a_hold(slurm: FakeSlurm) -> None:
    port, job = resume_port(slurm), slurm.running(1, n0=2)
    slurm.change(job, marks=PROFILE_MARK)
    slurm.requeue_hold(job)
    assert job_as_read(port, job).hold is Hold.HOPS
    assert slurm.table[job].state is SlurmState.PENDING

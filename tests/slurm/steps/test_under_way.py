"""Steps that take longer than one call waits: begun, carried on, and resumed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_slurm import FakeSlurm

from hopsd.core.queue.backoff import after_outcomes
from hopsd.errors import SlurmError
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.model.reading import Hold, JobReading, SaveTimes, SlurmState
from hopsd.model.script_options import ScriptOptions
from hopsd.model.step import OutcomeStatus, Phase, Step, StepKind, StepOutcome
from hopsd.slurm.adapter import Placement, SignalScope
from hopsd.slurm.apply import SlurmPort
from hopsd.slurm.steps.vacate import Action, LeavingJob, next_action
from hopsd.slurm.watch import ApplySettings

PATIENCE = 3.0
SETTINGS = ApplySettings(grace_seconds=10.0, poll_seconds=0.5, patience_seconds=PATIENCE)


@pytest.fixture
def slurm() -> FakeSlurm:
    return FakeSlurm()


def port(slurm: FakeSlurm, settings: ApplySettings = SETTINGS) -> SlurmPort:
    return SlurmPort(
        slurm, settings, clock=lambda: slurm.now, monotonic=lambda: slurm.now, sleep=slurm.sleep
    )


def stubborn_job(slurm: FakeSlurm, seconds: int = 300, **gpus: int) -> JobReading:
    """A running job that asks for a long grace and ignores the signal."""
    job = slurm.running(1, **gpus)
    slurm.change(job, options=ScriptOptions(signal="USR1", signal_seconds=seconds))
    return slurm.table[job]


def start(job: JobId, **gpus: int) -> Step:
    return Step(job, StepKind.START, target=Allocation.of(gpus))


def move(job: JobReading, **gpus: int) -> Step:
    return Step(job.id, StepKind.MOVE, job.allocation, Allocation.of(gpus))


def until_over(site: SlurmPort, slurm: FakeSlurm, seconds: float = 600.0) -> list[StepOutcome]:
    """Call ``carry_on`` each second, as hopsd does; no call may take longer than PATIENCE."""
    outcomes: list[StepOutcome] = []
    end = slurm.now + seconds
    while site.under_way and slurm.now < end:
        start_time = slurm.now
        outcomes += site.carry_on()
        assert slurm.now - start_time <= PATIENCE + 1.5
        slurm.sleep(1.0)
    return outcomes


def test_no_call_waits_for_a_grace_period(slurm: FakeSlurm) -> None:
    """Regression: 300 s of grace blocked the tick for 300 s, and nobody else got the idle GPUs."""
    job, new_job = stubborn_job(slurm, n0=8), slurm.add(2)
    site = port(slurm)
    move_outcome, start_outcome = site.apply([move(job, n1=8), start(new_job, n2=8)])
    assert slurm.now <= 1000.0 + PATIENCE + 1.0
    assert move_outcome.status is OutcomeStatus.UNDER_WAY
    assert start_outcome.status is OutcomeStatus.DONE
    assert [transition.phase for transition in site.under_way] == [Phase.LEAVING]
    late_job = slurm.add(3)
    assert [o.status for o in site.apply([start(late_job, n1=2)])] == [OutcomeStatus.DONE]
    slurm.change(late_job, state=SlurmState.COMPLETED, allocation=Allocation())
    [outcome] = until_over(site, slurm)
    assert outcome.status is OutcomeStatus.DONE
    assert outcome.actual == Allocation.of({"n1": 8})
    assert outcome.vacated == pytest.approx(1300.0, abs=2.0)


def test_only_starts_on_nodes_that_a_job_leaves_wait_for_it(slurm: FakeSlurm) -> None:
    job, heir = stubborn_job(slurm, n0=8), slurm.add(2)
    site = port(slurm)
    outcomes = site.apply([Step(job.id, StepKind.PREEMPT, job.allocation), start(heir, n0=8)])
    assert [outcome.status for outcome in outcomes] == [OutcomeStatus.UNDER_WAY] * 2
    assert {transition.phase for transition in site.under_way} == {Phase.LEAVING, Phase.WAITING}
    outcome_by_job = {outcome.step.job: outcome for outcome in until_over(site, slurm)}
    assert {outcome.status for outcome in outcome_by_job.values()} == {OutcomeStatus.DONE}
    assert outcome_by_job[heir].started >= 1300.0


def test_another_process_resumes_a_grace_period(slurm: FakeSlurm) -> None:
    """The signal is not sent twice, and the job gets its whole grace."""
    job = stubborn_job(slurm, n0=8)
    first = port(slurm)
    first.apply([move(job, n1=8)])
    transitions = first.under_way
    slurm.sleep(50.0)  # hopsd is down, and the job's grace does not pass
    second = port(slurm)
    second.resume(transitions)
    assert not second.carry_on()
    [outcome] = until_over(second, slurm)
    assert outcome.status is OutcomeStatus.DONE
    assert slurm.writes().count("signal") == 1
    assert 1345.0 <= (outcome.vacated or 0.0) <= 1355.0


@pytest.mark.parametrize("runs", [True, False])
def test_another_process_resumes_a_start(slurm: FakeSlurm, runs: bool) -> None:
    """hopsd is killed just before Slurm starts a job: it runs as planned, or is held again."""
    job = slurm.add(1)
    slurm.begins = {job: 8.0 if runs else 1e9}
    first = port(slurm)
    first.apply([start(job, n0=2)])
    assert [transition.phase for transition in first.under_way] == [Phase.STARTING]
    second = port(slurm)
    second.resume(first.under_way)
    [outcome] = until_over(second, slurm)
    assert outcome.status is (OutcomeStatus.DONE if runs else OutcomeStatus.PUT_OFF)
    assert runs == (slurm.table[job].state is SlurmState.RUNNING)
    assert slurm.table[job].hold is (Hold.NONE if runs else Hold.HOPS)


def test_a_long_epilog_is_awaited_without_backoff(slurm: FakeSlurm) -> None:
    """Regression: while a job completed on the node, a tick took 95 s, and the start FAILED."""
    job = slurm.add(1)
    slurm.nodes = (replace(slurm.nodes[0], state_text="IDLE+COMPLETING"), *slurm.nodes[1:])
    site = port(slurm)
    [outcome] = site.apply([start(job, n0=2)])
    assert outcome.status is OutcomeStatus.UNDER_WAY
    assert slurm.now <= 1000.0 + PATIENCE + 1.0
    assert "release" not in slurm.writes()
    slurm.sleep(20.0)
    slurm.nodes = (replace(slurm.nodes[0], state_text="IDLE"), *slurm.nodes[1:])
    [outcome] = until_over(site, slurm)
    assert outcome.status is OutcomeStatus.DONE


def test_an_endless_epilog_postpones_the_start(slurm: FakeSlurm) -> None:
    job = slurm.add(1)
    slurm.nodes = (replace(slurm.nodes[0], state_text="IDLE+COMPLETING"), *slurm.nodes[1:])
    site = port(slurm)
    site.apply([start(job, n0=2)])
    [outcome] = until_over(site, slurm)
    assert outcome.status is OutcomeStatus.PUT_OFF
    assert "completing" in outcome.error


def test_a_persons_hold_ends_a_waiting_start(slurm: FakeSlurm) -> None:
    job, heir = stubborn_job(slurm, n0=8), slurm.add(2)
    site = port(slurm)
    site.apply([Step(job.id, StepKind.PREEMPT, job.allocation), start(heir, n0=8)])
    slurm.change(heir, hold=Hold.USER)
    outcome_by_job = {outcome.step.job: outcome for outcome in until_over(site, slurm)}
    assert outcome_by_job[heir].status is OutcomeStatus.FAILED
    assert "holds it" in outcome_by_job[heir].error
    assert heir not in slurm.released_at


def test_a_transition_is_not_begun_twice(slurm: FakeSlurm) -> None:
    job = stubborn_job(slurm, n0=8)
    site = port(slurm)
    for _ in range(3):
        [outcome] = site.apply([move(job, n1=8)])
        assert outcome.status is OutcomeStatus.UNDER_WAY
    assert slurm.writes() == ["signal"]


def test_a_queued_start_can_be_returned_to_slurm(slurm: FakeSlurm) -> None:
    job, heir = stubborn_job(slurm, n0=8), slurm.add(2)
    site = port(slurm)
    site.apply([Step(job.id, StepKind.PREEMPT, job.allocation), start(heir, n0=8)])
    slurm.placements[heir] = Allocation.of({"n1": 8})  # what plain Slurm allocates
    [outcome] = site.apply([Step(heir, StepKind.RELEASE, gpus=8)])
    assert outcome.status is OutcomeStatus.DONE
    assert [transition.step.job for transition in site.under_way] == [job.id]


def test_a_job_that_ends_in_the_grace_of_our_signal_is_recorded_so(slurm: FakeSlurm) -> None:
    """`--signal=USR1@10` and a handler that exits 0: hops' own signal ends the job."""
    job = stubborn_job(slurm, n0=8)
    slurm.on_signal = lambda read: replace(
        read,
        state=SlurmState.COMPLETED,
        state_text="COMPLETED",
        allocation=Allocation(),
        end=1002.0,
    )
    [outcome] = port(slurm).apply([move(job, n1=8)])
    assert outcome.status is OutcomeStatus.GONE
    assert outcome.warned == 1000.0
    assert "hops sent USR1 at" in outcome.error
    assert "the script ended 2 s later with exit code 0 (COMPLETED)" in outcome.error


def test_a_script_is_suspended_before_a_signal_for_its_steps_only(slurm: FakeSlurm) -> None:
    """Regression: with `--signal=USR1@10` before a plain srun, hops' signal completed the job."""
    job = slurm.running(1, n0=8)
    slurm.change(job, options=ScriptOptions(signal="USR1", signal_steps=True, signal_seconds=10))
    [outcome] = port(slurm).apply([move(slurm.table[job], n1=8)])
    assert slurm.signals == [(job, "STOP", SignalScope.BATCH), (job, "USR1", SignalScope.STEPS)]
    assert outcome.status is OutcomeStatus.UNDER_WAY


def test_a_job_that_stays_after_all_is_resumed(slurm: FakeSlurm) -> None:
    """hopsd was killed between the warning and the requeue, and the plan is finished."""
    stopped_job, running_job = slurm.running(1, n0=8), slurm.running(2, n1=8)
    slurm.change(
        stopped_job, options=ScriptOptions(signal="USR1", signal_steps=True, signal_seconds=10)
    )
    port(slurm).let_go_on([stopped_job, running_job, JobId("3")])
    assert slurm.signals == [(stopped_job, "CONT", SignalScope.BATCH)]


def test_a_job_that_slurm_does_not_requeue_is_resumed(slurm: FakeSlurm) -> None:
    """Regression: its script stayed stopped for ever, and kept its GPUs."""
    job = slurm.running(1, n0=8)
    slurm.change(job, options=ScriptOptions(signal="USR1", signal_steps=True, signal_seconds=10))
    slurm.refuse.add("requeue_hold")
    site = port(slurm)
    site.apply([move(slurm.table[job], n1=8)])
    [outcome] = until_over(site, slurm)
    assert outcome.status is OutcomeStatus.FAILED
    assert slurm.signals[-1] == (job, "CONT", SignalScope.BATCH)


LEAVING_JOB = LeavingJob(Step(JobId("1"), StepKind.PREEMPT), 0.0, grace_end=10.0, signal="USR1")
STOPPING_JOB = replace(LEAVING_JOB, requeue_time=10.0)


@pytest.mark.parametrize(
    ("transition", "state", "ticks", "expected_action"),
    [
        (LEAVING_JOB, SlurmState.RUNNING, 9.0, Action.WAIT),
        (LEAVING_JOB, SlurmState.RUNNING, 10.0, Action.REQUEUE),
        (LEAVING_JOB, SlurmState.SUSPENDED, 10.0, Action.REQUEUE),
        (LEAVING_JOB, SlurmState.COMPLETING, 69.0, Action.WAIT),
        (LEAVING_JOB, SlurmState.COMPLETING, 70.0, Action.GIVE_UP),
        (STOPPING_JOB, SlurmState.RUNNING, 69.0, Action.WAIT),
        (STOPPING_JOB, SlurmState.RUNNING, 70.0, Action.GIVE_UP),
        (LEAVING_JOB, SlurmState.PENDING, 1.0, Action.VACATED),
        (STOPPING_JOB, SlurmState.PENDING, 1.0, Action.VACATED),
        (LEAVING_JOB, SlurmState.COMPLETED, 1.0, Action.ENDED),
        (LEAVING_JOB, SlurmState.CANCELLED, 1.0, Action.ENDED),
        (replace(STOPPING_JOB, refusal="no"), SlurmState.RUNNING, 11.0, Action.GIVE_UP),
        (replace(STOPPING_JOB, refusal="no"), SlurmState.PENDING, 11.0, Action.VACATED),
    ],
)
def test_the_next_action_follows_from_state_and_time(
    slurm: FakeSlurm,
    transition: LeavingJob,
    state: SlurmState,
    ticks: float,
    expected_action: Action,
) -> None:
    job = slurm.table[slurm.add(1, state=state)]
    assert next_action(transition, job, ticks, SETTINGS) is expected_action


def test_a_job_ended_only_by_our_signal_is_requeued(slurm: FakeSlurm) -> None:
    job = slurm.table[slurm.add(1, state=SlurmState.FAILED, exit_signal=10)]
    assert next_action(LEAVING_JOB, job, 1.0, SETTINGS) is Action.REQUEUE_ENDED
    assert next_action(LEAVING_JOB, None, 1.0, SETTINGS) is Action.ENDED


class Saves:
    """A training that saves from 8 s to 11 s, 18 s to 21 s, and so on."""

    def __init__(self, slurm: FakeSlurm, *, seconds: float = 3.0, interval: float = 10.0) -> None:
        self._slurm, self._seconds, self._interval = slurm, seconds, interval

    def __call__(self, job: JobReading) -> SaveTimes | None:
        seconds_since_save = (self._slurm.now - 1008.0) % self._interval
        end = self._slurm.now - seconds_since_save - self._interval + self._seconds
        if seconds_since_save < self._seconds:
            return SaveTimes(saving=True, at=end, interval=self._interval)
        return SaveTimes(at=end + self._interval, interval=self._interval)


def job_without_trap(slurm: FakeSlurm, **gpus: int) -> JobReading:
    """A running job whose script handles no signal."""
    job = slurm.running(1, **gpus)
    slurm.change(job, options=ScriptOptions(traps=frozenset()))
    return slurm.table[job]


@pytest.mark.parametrize("began", [0.0, 5.0, 7.9, 8.5, 10.9])
def test_a_job_without_a_signal_leaves_just_after_a_save(slurm: FakeSlurm, began: float) -> None:
    job, saves = job_without_trap(slurm, n0=8), Saves(slurm)
    slurm.sleep(began)
    site = SlurmPort(
        slurm, SETTINGS, clock=lambda: slurm.now, monotonic=lambda: slurm.now, sleep=slurm.sleep,
        saves=saves,
    )  # fmt: skip
    outcomes = [o for o in site.apply([move(job, n1=8)]) if o.status is not OutcomeStatus.UNDER_WAY]
    outcomes += until_over(site, slurm)
    assert [outcome.status for outcome in outcomes] == [OutcomeStatus.DONE]
    assert 1001.0 <= slurm.requeued_at <= 1004.0 or 1011.0 <= slurm.requeued_at <= 1013.0


@pytest.mark.parametrize(
    ("seconds", "interval", "began", "requeue_time"),
    [
        (1.0, 600.0, 20.0, 1020.0),  # the next save is far away
        (600.0, 1200.0, 8.0, 1308.0),  # a save that takes longer than the longest grace
    ],
)
def test_the_wait_for_a_save_is_limited(
    slurm: FakeSlurm, seconds: float, interval: float, began: float, requeue_time: float
) -> None:
    job = job_without_trap(slurm, n0=8)
    slurm.sleep(began)
    site = SlurmPort(
        slurm, SETTINGS, clock=lambda: slurm.now, monotonic=lambda: slurm.now, sleep=slurm.sleep,
        saves=Saves(slurm, seconds=seconds, interval=interval),
    )  # fmt: skip
    site.apply([move(job, n1=8)])
    until_over(site, slurm)
    assert slurm.requeued_at == pytest.approx(requeue_time, abs=2.0)


def test_another_process_also_waits_for_the_save(slurm: FakeSlurm) -> None:
    job, saves = job_without_trap(slurm, n0=8), Saves(slurm)
    slurm.sleep(5.0)

    def site() -> SlurmPort:
        return SlurmPort(
            slurm, SETTINGS, clock=lambda: slurm.now, monotonic=lambda: slurm.now,
            sleep=slurm.sleep, saves=saves,
        )  # fmt: skip

    first, second = site(), site()
    first.apply([move(job, n1=8)])
    second.resume(first.under_way)
    until_over(second, slurm)
    assert 1011.0 <= slurm.requeued_at <= 1013.0


def test_a_refusal_while_slurmdbd_hangs_is_not_a_failed_start(
    slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: each refusal doubled the job's back-off, though no node or limit was at fault."""
    site, job = port(slurm), slurm.add(1)

    def refuse(placement: Placement) -> None:
        raise SlurmError(
            "scontrol update: Job update not available right now, the DB index is being set,"
            " try again in a bit"
        )

    with monkeypatch.context() as patch:
        patch.setattr(slurm, "place", refuse)
        outcomes = [outcome for _ in range(4) for outcome in site.apply([start(job, n0=2)])]
    assert {outcome.status for outcome in outcomes} == {OutcomeStatus.PUT_OFF}
    assert all("DB index" in outcome.error for outcome in outcomes)
    assert not after_outcomes({}, outcomes, slurm.now)
    assert [o.status for o in site.apply([start(job, n0=2)])] == [OutcomeStatus.DONE]


@pytest.mark.parametrize("kind", ["leaving", "starting"])
def test_a_number_reused_meanwhile_is_another_job(slurm: FakeSlurm, kind: str) -> None:
    """Regression: after slurmctld lost its state, an innocent job was requeued."""
    job = stubborn_job(slurm, n0=8)
    site, second_job = port(slurm), slurm.add(2)
    step = move(job, n1=8) if kind == "leaving" else start(second_job, n0=8)
    site.apply([step, *([move(job, n1=8)] if kind == "starting" else [])])
    slurm.change(step.job, submit=slurm.now, state=SlurmState.PENDING, hold=Hold.HOPS)
    slurm.change(step.job, allocation=Allocation())
    slurm.calls.clear()
    outcomes = {outcome.step.job: outcome for outcome in until_over(site, slurm)}
    assert outcomes[step.job].status is OutcomeStatus.GONE
    assert ("requeue_hold", step.job) not in slurm.calls
    assert ("place", step.job) not in slurm.calls

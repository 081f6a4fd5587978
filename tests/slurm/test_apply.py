"""The order of requests, with an adapter in memory that has its own clock."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from fake_slurm import NODES, FakeSlurm
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from slurm_contract import hold, move, preempt, start, statuses

from hopsd.errors import NotLeaderError, SlurmError, SlurmUnavailableError
from hopsd.model.allocation import Allocation
from hopsd.model.devices import CPU
from hopsd.model.ids import GpuType, JobId, NodeName
from hopsd.model.reading import USER_HOLD_BEGIN, Hold, JobReading, NodeReading, Reading, SlurmState
from hopsd.model.step import OutcomeStatus, Step, StepKind
from hopsd.slurm.adapter import Placement
from hopsd.slurm.apply import SlurmPort
from hopsd.slurm.fenced import FencedAdapter
from hopsd.slurm.shadow.port import ShadowPort
from hopsd.slurm.steps.place import RELEASING_SECONDS, VACATED_SECONDS
from hopsd.slurm.steps.wave import usable_gpus
from hopsd.slurm.watch import ApplySettings


@pytest.fixture
def slurm() -> FakeSlurm:
    return FakeSlurm()


def port(slurm: FakeSlurm, grace_seconds: float = 10.0) -> SlurmPort:
    settings = ApplySettings(grace_seconds=grace_seconds, poll_seconds=0.5)
    return SlurmPort(
        slurm, settings, clock=lambda: slurm.now, monotonic=lambda: slurm.now, sleep=slurm.sleep
    )


def test_an_empty_plan_makes_no_request(slurm: FakeSlurm) -> None:
    assert port(slurm).apply([]) == []
    assert not slurm.calls


def test_signals_come_before_any_wait_and_requeue(slurm: FakeSlurm) -> None:
    jobs = [slurm.running(i, n0=2) for i in range(3)]
    outcomes = port(slurm).apply([preempt(job) for job in jobs])
    assert statuses(outcomes) == [OutcomeStatus.DONE] * 3
    assert slurm.writes() == ["signal"] * 3 + ["requeue_hold"] * 3
    assert slurm.now == pytest.approx(1010.0, abs=1.0)


def test_a_long_grace_blocks_no_idle_gpus(slurm: FakeSlurm) -> None:
    """Regression: a script that asked for 300 s and ignored its signal held up all starts."""
    slurm.running(1, n0=8)
    slurm.add(2), slurm.add(3)
    steps = [preempt(JobId("1")), start(JobId("2"), n1=8), start(JobId("3"), n0=2)]
    outcomes = port(slurm, grace_seconds=300.0).apply(steps)
    assert statuses(outcomes) == [OutcomeStatus.DONE] * 3
    assert outcomes[1].started < 1010.0
    assert slurm.writes().index("release") < slurm.writes().index("requeue_hold")
    assert outcomes[2].started >= 1300.0


def test_a_start_that_depends_on_leaving_jobs_is_retried_after_them(slurm: FakeSlurm) -> None:
    """For example, a user's limit lets the job start only after a job of the same user has left."""
    slurm.running(1, n0=8)
    slurm.add(2)
    runs = slurm._run

    def leaves(job: JobReading) -> JobReading:
        slurm.change(JobId("2"), reason="")
        return replace(job, state=SlurmState.COMPLETED, allocation=Allocation())

    slurm.on_signal = leaves

    def run(job: JobId) -> None:
        if slurm.table[JobId("1")].state.finished:
            runs(job)
        else:
            slurm.change(job, reason="QOSMaxGRESPerUser")

    slurm._run = run  # type: ignore[method-assign]
    outcomes = port(slurm).apply([move(JobId("1"), n1=8), start(JobId("2"), n2=8)])
    assert statuses(outcomes) == [OutcomeStatus.GONE, OutcomeStatus.DONE]


def test_no_grace_is_spent_on_jobs_that_already_left(slurm: FakeSlurm) -> None:
    slurm.on_signal = lambda job: replace(
        job, state=SlurmState.PENDING, hold=Hold.HOPS, allocation=Allocation(), restarts=1
    )
    job = slurm.running(1, n0=2)
    [outcome] = port(slurm, grace_seconds=600).apply([preempt(job)])
    assert outcome.status is OutcomeStatus.DONE
    assert outcome.vacated == 1000.0
    assert slurm.writes() == ["signal"]


def test_a_job_requeued_without_a_hold_is_held(slurm: FakeSlurm) -> None:
    """This happens on a site whose exit code is in RequeueExit instead of RequeueExitHold."""
    slurm.on_signal = lambda job: replace(
        job, state=SlurmState.PENDING, hold=Hold.NONE, allocation=Allocation(), restarts=1
    )
    job = slurm.running(1, n0=2)
    assert statuses(port(slurm).apply([preempt(job)])) == [OutcomeStatus.DONE]
    assert slurm.writes() == ["signal", "hold"]


@pytest.mark.parametrize("state", [SlurmState.COMPLETED, SlurmState.CANCELLED, SlurmState.TIMEOUT])
def test_a_job_that_ended_in_its_grace_is_never_requeued(
    slurm: FakeSlurm, state: SlurmState
) -> None:
    slurm.on_signal = lambda job: replace(job, state=state, allocation=Allocation())
    job = slurm.running(1, n0=2)
    assert statuses(port(slurm).apply([move(job, n1=2)])) == [OutcomeStatus.GONE]
    assert slurm.writes() == ["signal"]


@pytest.mark.parametrize(
    ("end_fields", "is_put_back"),
    [({"exit_signal": 10}, True), ({"exit_code": 138}, True), ({"exit_code": 1}, False)],
)
def test_a_job_killed_by_our_signal_is_requeued_later(
    slurm: FakeSlurm, end_fields: dict[str, int], is_put_back: bool
) -> None:
    job = slurm.add(1, state=SlurmState.FAILED, hold=Hold.NONE, **end_fields)
    [outcome] = port(slurm).apply([Step(job, StepKind.REQUEUE)])
    assert (outcome.status is OutcomeStatus.DONE) == is_put_back
    assert (slurm.table[job].state is SlurmState.PENDING) == is_put_back


def test_a_job_that_completes_before_the_requeue_does_not_run_again(slurm: FakeSlurm) -> None:
    requeue = slurm.requeue_hold

    def requeue_late(job: JobId, *, ended: bool = False) -> None:
        slurm.change(job, state=SlurmState.COMPLETED, allocation=Allocation())
        requeue(job, ended=ended)

    slurm.requeue_hold = requeue_late  # type: ignore[method-assign]
    job = slurm.running(1, n0=2)
    assert statuses(port(slurm).apply([move(job, n1=2)])) == [OutcomeStatus.GONE]
    assert slurm.table[job].state is SlurmState.COMPLETED


def test_nothing_is_requested_after_the_lead_is_lost(slurm: FakeSlurm) -> None:
    leads = 3

    def assure() -> None:
        nonlocal leads
        leads -= 1
        if leads < 0:
            raise NotLeaderError("another hopsd has led since")

    fenced_adapter = FencedAdapter(slurm, assure)
    settings = ApplySettings(grace_seconds=10.0, poll_seconds=0.5)
    port = SlurmPort(
        fenced_adapter,
        settings,
        clock=lambda: slurm.now,
        monotonic=lambda: slurm.now,
        sleep=slurm.sleep,
    )
    jobs = [slurm.running(i, n0=2) for i in range(2)]
    with pytest.raises(NotLeaderError):
        port.apply([preempt(job) for job in jobs])
    assert slurm.writes() == ["signal", "signal", "requeue_hold"]


@pytest.mark.parametrize("end_fields", [{"exit_signal": 10}, {"exit_code": 138}])
def test_a_job_killed_by_our_signal_is_requeued(
    slurm: FakeSlurm, end_fields: dict[str, int]
) -> None:
    slurm.on_signal = lambda job: replace(
        job, state=SlurmState.FAILED, allocation=Allocation(), **end_fields
    )
    job = slurm.running(1, n0=2)
    [outcome] = port(slurm).apply([move(job, n1=2)])
    assert outcome.status is OutcomeStatus.DONE
    assert outcome.actual.as_dict() == {"n1": 2}


def test_a_job_killed_by_our_signal_is_requeued_even_after_its_grace(
    slurm: FakeSlurm,
) -> None:
    job = slurm.running(1, n0=2)
    slurm.on_signal = lambda job: replace(job, state=SlurmState.COMPLETING)
    sleep = slurm.sleep

    def ends_late(seconds: float) -> None:
        sleep(seconds)
        if slurm.now > 1012.0 and slurm.table[job].state is SlurmState.COMPLETING:
            slurm.change(job, state=SlurmState.FAILED, exit_signal=10, allocation=Allocation())

    slurm.sleep = ends_late  # type: ignore[method-assign]
    [outcome] = port(slurm, grace_seconds=10.0).apply([move(job, n1=2)])
    assert outcome.status is OutcomeStatus.DONE
    assert outcome.actual.as_dict() == {"n1": 2}


def cleans_up(
    slurm: FakeSlurm, job: JobReading, seconds: float, **end_fields: object
) -> JobReading:
    """``job`` as its run is over; Slurm reports how it ended after ``seconds``."""
    slurm.later.append((slurm.now + seconds, lambda: slurm.change(job.id, **end_fields)))
    return replace(job, state=SlurmState.COMPLETING, allocation=Allocation())


def test_a_job_that_completes_after_its_grace_does_not_run_again(slurm: FakeSlurm) -> None:
    slurm.on_signal = lambda job: cleans_up(slurm, job, 15.0, state=SlurmState.COMPLETED)
    job = slurm.running(1, n0=2)
    [outcome] = port(slurm).apply([move(job, n1=2)])
    assert outcome.status is OutcomeStatus.GONE
    assert slurm.writes() == ["signal"]


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_completing_job_is_requeued_if_our_signal_killed_it(
    slurm: FakeSlurm, is_killed: bool
) -> None:
    end_state = SlurmState.FAILED if is_killed else SlurmState.COMPLETED
    job = slurm.running(1, n0=2)
    signal = 10 if is_killed else 0
    slurm.table[job] = cleans_up(slurm, slurm.table[job], 3.0, state=end_state, exit_signal=signal)
    [outcome] = port(slurm).apply([Step(job, StepKind.REQUEUE)])
    assert outcome.status is (OutcomeStatus.DONE if is_killed else OutcomeStatus.GONE)
    assert slurm.writes() == (["requeue_hold"] if is_killed else [])


def test_a_restart_waits_for_the_next_second(slurm: FakeSlurm) -> None:
    """slurmd identifies a job's revoked credential by the second in which the job was stopped."""
    job = slurm.running(1, n0=2)
    [outcome] = port(slurm).apply([move(job, n0=4)])
    assert outcome.vacated is not None
    assert int(slurm.released_at[job]) > int(outcome.vacated)


def test_a_job_that_moves_to_other_hosts_need_not_wait(slurm: FakeSlurm) -> None:
    job = slurm.running(1, n0=2)
    target = Allocation.of({"n1": 2})
    step = Step(job, StepKind.MOVE, current=slurm.table[job].allocation, target=target)
    [outcome] = port(slurm).apply([step])
    assert slurm.released_at[job] == outcome.vacated


def test_an_uneven_job_waits_for_all_others_on_its_nodes(slurm: FakeSlurm) -> None:
    uneven_job, first, second = slurm.add(1), slurm.add(2), slurm.add(3)
    steps = [start(uneven_job, n0=2, n1=4), start(first, n0=6), start(second, n1=1)]
    outcomes = port(slurm).apply(steps)
    assert statuses(outcomes) == [OutcomeStatus.DONE] * 3
    releases = [subject for operation, subject in slurm.calls if operation == "release"]
    assert releases == [(first, second), (uneven_job,)]


def test_a_job_behind_one_that_does_not_start_is_postponed(slurm: FakeSlurm) -> None:
    """Its nodes still have the GPUs of the first one, so it would fill them in another way."""
    slurm.refuse = {"place"}
    first, second, third, alone = (slurm.add(number) for number in range(1, 5))
    steps = [
        start(first, n0=6),
        start(second, n0=2, n1=4),
        start(third, n1=4, n2=3),
        start(alone, n3=2, n4=8),
    ]
    outcomes = port(slurm).apply(steps)
    assert statuses(outcomes) == [
        *(OutcomeStatus.FAILED, OutcomeStatus.PUT_OFF, OutcomeStatus.PUT_OFF, OutcomeStatus.FAILED)
    ]
    assert "other jobs on its nodes did not start" in outcomes[1].error


@pytest.mark.parametrize(
    ("target", "cores"),
    [({"n0": 2}, 3), ({"n1": 2}, 4), ({"n2": 1}, 10), ({"n1": 2, "n2": 1}, 4)],
)
def test_cores_follow_the_setting_for_gpus_and_the_nodes_for_cpus(
    slurm: FakeSlurm, target: dict[str, int], cores: int
) -> None:
    cpus = {"n1": NodeReading(NODES[1], CPU, 2, 9), "n2": NodeReading(NODES[2], CPU, 3, 32)}
    slurm.nodes = tuple(cpus.get(node.name, node) for node in slurm.nodes)
    job = slurm.add(1)
    settings = ApplySettings(cpus_per_gpu=3, kept_cores=1, poll_seconds=0.5)
    port = SlurmPort(
        slurm, settings, clock=lambda: slurm.now, monotonic=lambda: slurm.now, sleep=slurm.sleep
    )
    assert statuses(port.apply([start(job, **target)])) == [OutcomeStatus.DONE]
    assert slurm.cores[job] == cores


def test_a_job_with_a_refused_update_is_never_released(slurm: FakeSlurm) -> None:
    slurm.refuse = {"place"}
    job = slurm.add(1)
    [outcome] = port(slurm).apply([start(job, n0=2)])
    assert outcome.status is OutcomeStatus.FAILED
    assert "place refused" in outcome.error
    assert "release" not in slurm.writes()


def test_a_job_that_does_not_start_is_held(slurm: FakeSlurm) -> None:
    slurm._run = lambda job: slurm.change(job, reason="Resources")  # type: ignore[method-assign]
    job = slurm.add(1)
    [outcome] = port(slurm).apply([start(job, n0=2)])
    assert outcome.status is OutcomeStatus.FAILED
    assert slurm.table[job].hold is Hold.HOPS
    assert slurm.writes()[-1] == "hold"


@pytest.mark.parametrize("reason", ["QOSMaxGRESPerUser", "AssocMaxJobsLimit", "PartitionConfig"])
def test_a_job_that_slurm_will_not_start_soon_is_held_again_at_once(
    slurm: FakeSlurm, reason: str
) -> None:
    run, delayed_job, quick = slurm._run, slurm.add(1), slurm.add(2)

    def later(job: JobId) -> None:
        run(job) if job == quick else slurm.change(job, reason=reason)

    slurm._run = later  # type: ignore[method-assign]
    outcomes = port(slurm).apply([start(delayed_job, n0=2), start(quick, n1=2)])
    assert statuses(outcomes) == [OutcomeStatus.FAILED, OutcomeStatus.DONE]
    assert slurm.table[delayed_job].hold is Hold.HOPS
    assert slurm.now < 1005.0


@pytest.mark.parametrize(
    ("reason", "partition"), [("ReqNodeNotAvail", "main"), ("QOSMaxGRESPerUser", "main,low")]
)
def test_a_reason_that_passes_with_the_next_cycle_is_awaited(
    slurm: FakeSlurm, reason: str, partition: str
) -> None:
    """Slurm gives the first reason to all jobs that ask for nodes of a job that it passed over."""
    run, limited_job, innocent = slurm._run, slurm.add(1), slurm.add(2, partition=partition)

    def cycle(job: JobId) -> None:
        slurm.change(job, reason="AssocGrpGRES" if job == limited_job else reason)
        if job == innocent:
            slurm.later.append((slurm.now + 3.0, lambda: run(job)))

    slurm._run = cycle  # type: ignore[method-assign]
    outcomes = port(slurm).apply([start(limited_job, n0=2), start(innocent, n0=2)])
    assert statuses(outcomes) == [OutcomeStatus.FAILED, OutcomeStatus.DONE]
    assert slurm.now < 1008.0


def test_a_job_whose_gpus_went_to_a_plain_job_is_not_awaited(slurm: FakeSlurm) -> None:
    late_job, cleaning_job = slurm.add(1), slurm.add(2)
    slurm.running(3, n2=8)
    place = slurm.place

    def place_too_late(placement: Placement) -> None:
        place(placement)
        slurm.nodes = (replace(slurm.nodes[0], foreign_gpus=7), *slurm.nodes[1:])

    def cleans_up(job: JobId) -> None:
        """The job's GPUs are free only once another job has left them."""
        if job == cleaning_job:
            slurm.later.append((slurm.now + 15.0, lambda: run(job)))
        else:
            slurm.change(job, reason="Resources")

    run, slurm.place, slurm._run = slurm._run, place_too_late, cleans_up  # type: ignore[method-assign]
    outcomes = port(slurm).apply([start(late_job, n0=2)])
    assert statuses(outcomes) == [OutcomeStatus.FAILED]
    assert "Slurm gave nothing in place of {n0:2}" in outcomes[0].error
    assert slurm.table[late_job].hold is Hold.HOPS
    assert slurm.now < 1010.0
    slurm.place = place  # type: ignore[method-assign]
    assert statuses(port(slurm).apply([start(cleaning_job, n1=2)])) == [OutcomeStatus.DONE]


def test_a_job_is_placed_in_those_of_its_partitions_that_have_its_nodes(slurm: FakeSlurm) -> None:
    slurm.nodes = tuple(
        replace(node, partitions=("main", "short") if node.name == "n0" else ("main",))
        for node in slurm.nodes
    )
    place, partitions_by_job = slurm.place, {}

    def note_place(placement: Placement) -> None:
        partitions_by_job[placement.job] = (placement.partition, placement.comment)
        place(placement)

    slurm.place = note_place  # type: ignore[method-assign]
    wide, narrow = slurm.add(1, partition="short,main"), slurm.add(2, partition="short,main")
    full = slurm.add(4, partition="short,main")
    steps = [start(wide, n0=2, n1=2), start(narrow, n0=2), start(slurm.add(3), n2=1)]
    port(slurm).apply([*steps, replace(start(full, n0=2), partition="main")])
    assert partitions_by_job == {
        full: ("main", "hops:reqs=1 #hops-partitions=short,main>main"),
        wide: ("main", "hops:reqs=1 #hops-partitions=short,main>main"),
        narrow: ("short,main", None),
        "3": ("", None),
    }


def test_a_job_that_does_not_start_blocks_no_other(slurm: FakeSlurm) -> None:
    """An uneven shape starts after the even ones on its nodes, not after those on others."""
    run, stuck_job, even, uneven_job = slurm._run, slurm.add(1), slurm.add(2), slurm.add(3)
    slurm._run = lambda job: None if job == stuck_job else run(job)  # type: ignore[method-assign]
    steps = [start(stuck_job, n2=8), start(even, n0=6), start(uneven_job, n0=2, n1=4)]
    outcomes = port(slurm).apply(steps)
    assert statuses(outcomes) == [OutcomeStatus.PUT_OFF, OutcomeStatus.DONE, OutcomeStatus.DONE]
    assert slurm.released_at[uneven_job] < 1005.0


def test_jobs_that_do_not_start_share_one_time_out(slurm: FakeSlurm) -> None:
    """This includes jobs that wait for one another, such as uneven ones on the same nodes."""
    slurm._run = lambda job: None  # type: ignore[method-assign]
    steps = [start(slurm.add(number), n0=4, n1=1) for number in range(1, 6)]
    steps += [start(slurm.add(number), n2=1) for number in range(6, 9)]
    outcomes = port(slurm).apply(steps)
    assert set(statuses(outcomes)) == {OutcomeStatus.PUT_OFF}
    assert all(slurm.table[step.job].hold is Hold.HOPS for step in steps)
    assert slurm.now < 1000.0 + ApplySettings().start_timeout_seconds + 10.0


def test_a_run_requeued_before_it_was_read_back_is_reported_and_not_awaited(
    slurm: FakeSlurm,
) -> None:
    run = slurm._run

    def requeue_at_start(job: JobId) -> None:
        run(job)
        slurm.change(job, state=SlurmState.PENDING, allocation=Allocation(), restarts=1)
        slurm.change(job, begin=slurm.now + 120.0, reason="BeginTime")

    slurm._run = requeue_at_start  # type: ignore[method-assign]
    job = slurm.add(1)
    [outcome] = port(slurm).apply([start(job, n0=2)])
    assert outcome.status is OutcomeStatus.FAILED
    assert (outcome.ran.as_dict(), outcome.started) == ({"n0": 2}, 1000.0)
    assert slurm.table[job].hold is Hold.HOPS
    assert slurm.now < 1005.0


def test_a_job_suspended_at_its_start_has_started(slurm: FakeSlurm) -> None:
    run = slurm._run

    def suspend_at_start(job: JobId) -> None:
        run(job)
        slurm.change(job, state=SlurmState.SUSPENDED)

    slurm._run = suspend_at_start  # type: ignore[method-assign]
    assert statuses(port(slurm).apply([start(slurm.add(1), n0=2)])) == [OutcomeStatus.DONE]


def test_a_clock_set_back_prolongs_no_wait(slurm: FakeSlurm) -> None:
    """The clock is set back by ten minutes during a grace period."""
    ticks = 0.0

    def sleep(seconds: float) -> None:
        nonlocal ticks
        ticks += seconds
        slurm.sleep(seconds)
        if 3.0 <= ticks < 3.5:
            slurm.now -= 600.0

    settings = ApplySettings(grace_seconds=10.0, poll_seconds=0.5)
    port = SlurmPort(slurm, settings, clock=lambda: slurm.now, monotonic=lambda: ticks, sleep=sleep)
    assert statuses(port.apply([preempt(slurm.running(1, n0=2))])) == [OutcomeStatus.DONE]
    assert ticks < 15.0


def test_a_hold_from_before_the_release_is_marked_again(slurm: FakeSlurm) -> None:
    """If the submit plugin did not refuse the hold, for example after a restart of slurmctld."""
    slurm._run = lambda job: slurm.change(job, begin=USER_HOLD_BEGIN)  # type: ignore[method-assign]
    job = slurm.add(1)
    [outcome] = port(slurm).apply([start(job, n0=2)])
    assert outcome.error == "its owner or an operator holds it"
    assert slurm.table[job].begin == USER_HOLD_BEGIN
    assert slurm.now < 1005.0


def test_a_refused_hold_changes_nothing_if_a_person_held_the_job(slurm: FakeSlurm) -> None:
    job = slurm.add(1, hold=Hold.NONE)

    def hold_by_person(job: JobId, begin: float = 0.0) -> None:
        slurm.change(job, hold=Hold.USER, begin=USER_HOLD_BEGIN)
        raise SlurmError("denied")

    slurm.hold = hold_by_person  # type: ignore[method-assign]
    assert statuses(port(slurm).apply([hold(job)])) == [OutcomeStatus.UNCHANGED]


def test_a_job_started_on_other_resources_is_requeued(slurm: FakeSlurm) -> None:
    def on_another_node(job: JobId) -> None:
        slurm.change(job, state=SlurmState.RUNNING, allocation=Allocation.of({"n2": 2}))

    slurm._run = on_another_node  # type: ignore[method-assign]
    job = slurm.add(1)
    [outcome] = port(slurm).apply([start(job, n0=2)])
    assert outcome.status is OutcomeStatus.FAILED
    assert "{n2:2}" in outcome.error
    assert (outcome.actual, outcome.ran.as_dict()) == (Allocation(), {"n2": 2})
    assert slurm.writes()[-1] == "requeue_hold"


def test_an_unanswered_request_ends_the_apply(slurm: FakeSlurm) -> None:
    def fail(job: JobId, *, ended: bool = False) -> None:
        raise SlurmUnavailableError("away")

    slurm.requeue_hold = fail  # type: ignore[method-assign]
    with pytest.raises(SlurmUnavailableError):
        port(slurm).apply([preempt(slurm.running(1, n0=2))])


def test_release_returns_a_held_job_to_slurm(slurm: FakeSlurm) -> None:
    job = slurm.add(1)
    slurm.placements[job] = Allocation.of({"n0": 2})
    [outcome] = port(slurm).apply([Step(job, StepKind.RELEASE, gpus=2)])
    assert outcome.status is OutcomeStatus.DONE
    assert slurm.calls == [("unpin", job), ("release", (job,))]


def test_release_leaves_a_users_hold_to_plain_slurm(slurm: FakeSlurm) -> None:
    job = slurm.add(1, hold=Hold.USER, begin=USER_HOLD_BEGIN)
    [outcome] = port(slurm).apply([Step(job, StepKind.RELEASE, gpus=2)])
    assert outcome.status is OutcomeStatus.DONE
    assert slurm.calls == [("unpin begin", job)]


def test_release_does_not_let_a_job_start_half_unpinned(
    slurm: FakeSlurm,
) -> None:
    job = slurm.add(1, hold=Hold.NONE)
    slurm.placements[job] = Allocation.of({"n0": 2})
    port(slurm).apply([Step(job, StepKind.RELEASE, gpus=2)])
    assert slurm.writes() == ["hold", "unpin", "release"]


@pytest.mark.parametrize(
    ("begin", "expected_begin"),
    [(0.0, 0.0), (USER_HOLD_BEGIN, 0.0), (5000.0, 5000.0)],
    ids=["none", "the mark of a hold", "the user's"],
)
def test_a_hold_keeps_the_begin_time_that_the_user_wants(
    slurm: FakeSlurm, begin: float, expected_begin: float
) -> None:
    job = slurm.add(1, hold=Hold.NONE, begin=begin)
    port(slurm).apply([hold(job)])
    assert (slurm.table[job].hold, slurm.table[job].begin) == (Hold.HOPS, expected_begin)


def test_a_shadow_requests_nothing(slurm: FakeSlurm) -> None:
    job = slurm.running(1, n0=2)
    shadow = ShadowPort(port(slurm))
    [outcome] = shadow.apply([preempt(job)])
    assert outcome.status is OutcomeStatus.UNCHANGED
    assert shadow.read().jobs[0].id == job
    assert not slurm.calls


ALLOCATIONS = st.dictionaries(st.sampled_from(NODES), st.integers(1, 8), max_size=3).map(
    Allocation.of
)


@hypothesis_settings(deadline=None)
@given(st.lists(st.tuples(ALLOCATIONS, ALLOCATIONS), min_size=1, max_size=4))
def test_outcomes_are_true_and_a_second_apply_changes_nothing(
    wishes: list[tuple[Allocation, Allocation]],
) -> None:
    """Any mixture of starts, moves and preemptions, possible or not."""
    slurm = FakeSlurm()
    steps = []
    for number, (now, target) in enumerate(wishes):
        fits = all(usable_gpus(slurm.read())[node] >= gpus for node, gpus in now)
        if now and fits:
            job = slurm.running(number, **now.as_dict())
            kind = StepKind.MOVE if target else StepKind.PREEMPT
        else:
            job = slurm.add(number)
            kind = StepKind.START if target else StepKind.HOLD
        steps.append(Step(job, kind, target=target))
    outcomes = port(slurm).apply(steps)
    assert [outcome.step for outcome in outcomes] == steps
    assert all(gpus >= 0 for gpus in usable_gpus(slurm.read()).values())
    for outcome in outcomes:
        job = slurm.table[outcome.step.job]
        assert outcome.actual == job.allocation
        assert job.state is SlurmState.RUNNING or job.hold is Hold.HOPS
        if outcome.status is OutcomeStatus.DONE:
            assert job.allocation == outcome.step.target
        assert outcome.status is not OutcomeStatus.FAILED or outcome.error
    unsuccessful = (OutcomeStatus.FAILED, OutcomeStatus.PUT_OFF)
    successful_steps = [o.step for o in outcomes if o.status not in unsuccessful]
    slurm.calls.clear()
    assert set(statuses(port(slurm).apply(successful_steps))) <= {OutcomeStatus.UNCHANGED}
    assert not slurm.calls


@pytest.mark.slow
def test_thousands_of_jobs_are_released_in_parts_and_refused_one_by_one(slurm: FakeSlurm) -> None:
    """Regression: one command for all of them took longer than a command may."""
    slurm.nodes = tuple(NodeReading(NodeName(f"n{i}"), GpuType("t"), 8, 32) for i in range(150))
    jobs = [slurm.add(i) for i in range(1000)]
    person_held = jobs[450]
    release = slurm.release

    def a_person_is_faster(released_ids: Sequence[JobId]) -> None:
        if person_held in released_ids:
            slurm.change(person_held, hold=Hold.USER)
            slurm.note_call("release", tuple(released_ids))
            raise SlurmError(f"access denied for job {person_held}")
        release(released_ids)

    slurm.release = a_person_is_faster  # type: ignore[method-assign]
    outcomes = port(slurm).apply([start(job, **{f"n{int(job) // 8}": 1}) for job in jobs])
    assert [o.step.job for o in outcomes if o.status is not OutcomeStatus.DONE] == [person_held]
    release_subjects = [subject for operation, subject in slurm.calls if operation == "release"]
    assert all(
        len(subject_ids) <= 50 for subject_ids in release_subjects if isinstance(subject_ids, tuple)
    )
    assert slurm.table[person_held].hold is Hold.USER


def wide(slurm: FakeSlurm, nodes: int) -> None:
    slurm.nodes = tuple(NodeReading(NodeName(f"n{i}"), GpuType("t"), 8, 32) for i in range(nodes))


def start_in_sequence(slurm: FakeSlurm, seconds: float) -> None:
    """Make Slurm take ``seconds`` for each start."""
    release, free_from = slurm.release, 0.0

    def after_the_others(jobs: Sequence[JobId]) -> None:
        nonlocal free_from
        for job in jobs:
            free_from = max(free_from, slurm.now) + seconds
            slurm.begins[job] = free_from - slurm.now
        release(jobs)

    slurm.release = after_the_others  # type: ignore[method-assign]


@pytest.mark.slow
def test_no_start_times_out_while_others_start(slurm: FakeSlurm) -> None:
    """Slurm needs longer than the start time-out for hundreds of jobs."""
    wide(slurm, 100)
    jobs = [slurm.add(i) for i in range(400)]
    start_in_sequence(slurm, 0.2)
    outcomes = port(slurm).apply([start(job, **{f"n{int(job) // 8}": 1}) for job in jobs])
    assert statuses(outcomes) == [OutcomeStatus.DONE] * 400
    assert slurm.now >= 1075.0


@pytest.mark.long
@pytest.mark.slow
def test_starts_that_a_busy_slurm_has_no_time_for_are_left_unchanged(slurm: FakeSlurm) -> None:
    """Regression: a first plan of thousands blocked hopsd for a quarter of an hour."""
    wide(slurm, 500)
    jobs = [slurm.add(i) for i in range(4000)]
    start_in_sequence(slurm, 0.1)
    outcomes = port(slurm).apply([start(job, **{f"n{int(job) // 8}": 1}) for job in jobs])
    done_count = statuses(outcomes).count(OutcomeStatus.DONE)
    assert 600 <= done_count < 1500
    assert statuses(outcomes) == [OutcomeStatus.DONE] * done_count + [OutcomeStatus.PUT_OFF] * (
        4000 - done_count
    )
    assert slurm.now < 1000.0 + 2 * RELEASING_SECONDS + 10.0
    assert slurm.placements.keys() == set(jobs[:done_count])
    assert all(slurm.table[job].hold is Hold.HOPS for job in jobs[done_count:])


def test_a_job_that_a_slow_slurm_has_not_considered_is_not_blamed(slurm: FakeSlurm) -> None:
    """Otherwise plans would leave out each such job for a minute, and avoid its nodes."""
    wide(slurm, 100)
    jobs = [slurm.add(i) for i in range(200)]
    slurm.add(200, reason="BadConstraints")
    start_in_sequence(slurm, 1.0)
    ran = slurm._run
    slurm._run = lambda job: None if job == "200" else ran(job)  # type: ignore[method-assign]
    steps = [start(job, **{f"n{int(job) // 8}": 1}) for job in [JobId("200"), *jobs]]
    first, *later_outcomes = port(slurm).apply(steps)
    assert first.status is OutcomeStatus.FAILED
    assert set(statuses(later_outcomes)) == {OutcomeStatus.DONE, OutcomeStatus.PUT_OFF}
    assert all(slurm.table[job].allocation or slurm.table[job].hold is Hold.HOPS for job in jobs)


@pytest.mark.slow
def test_a_job_that_was_made_to_leave_is_not_postponed(slurm: FakeSlurm) -> None:
    """Otherwise its move would cost it its GPUs until the next plan."""
    wide(slurm, 500)
    moving_jobs = [slurm.running(i, **{f"n{i}": 8}) for i in range(8)]
    jobs = [slurm.add(100 + i) for i in range(2000)]
    start_in_sequence(slurm, 0.1)
    steps = [start(job, **{f"n{10 + i // 8}": 1}) for i, job in enumerate(jobs)]
    steps += [start(slurm.add(5000 + i), **{f"n{i // 8}": 1}) for i in range(64)]
    steps += [move(job, **{f"n{400 + i}": 8}) for i, job in enumerate(moving_jobs)]
    outcomes = port(slurm).apply(steps)
    assert statuses(outcomes)[-8:] == [OutcomeStatus.DONE] * 8
    assert OutcomeStatus.PUT_OFF in statuses(outcomes)


def test_a_job_that_never_starts_is_held_again_while_others_start(slurm: FakeSlurm) -> None:
    """Regression: a start within each time-out kept it released, and the round going, for hours."""
    wide(slurm, 100)
    jobs = [slurm.add(i) for i in range(100)]
    slurm.begins = {job: 29.0 * int(job) for job in jobs} | {jobs[0]: 1e9}
    outcomes = port(slurm).apply([start(job, **{f"n{job}": 1}) for job in jobs])
    assert [o.step.job for o in outcomes if o.status is OutcomeStatus.DONE] == ["1", "2", "3"]
    assert all(slurm.table[job].hold is Hold.HOPS for job in jobs if job not in ("1", "2", "3"))
    assert slurm.now < 1000.0 + ApplySettings().start_timeout_seconds + RELEASING_SECONDS + 5.0


def test_jobs_that_start_in_sequence_do_not_make_a_round_endless(
    slurm: FakeSlurm,
) -> None:
    """Uneven jobs on the same nodes; those that are left out are still held."""
    jobs = [slurm.add(i) for i in range(20)]
    slurm.begins = dict.fromkeys(jobs, 14.0)
    ran = slurm._run

    def run(job: JobId) -> None:
        ran(job)
        slurm.later.append(
            (
                slurm.now + 1.0,
                lambda: slurm.change(job, state=SlurmState.COMPLETED, allocation=Allocation()),
            )
        )

    slurm._run = run  # type: ignore[method-assign]
    outcomes = port(slurm).apply([start(job, n0=4, n1=1) for job in jobs])
    assert {o.status for o in outcomes} >= {OutcomeStatus.DONE, OutcomeStatus.PUT_OFF}
    assert slurm.now < 1080.0
    assert all(
        slurm.table[o.step.job].hold is Hold.HOPS
        for o in outcomes
        if o.status is not OutcomeStatus.DONE
    )


@pytest.mark.slow
def test_the_time_out_of_a_wave_begins_with_its_own_release(slurm: FakeSlurm) -> None:
    """The updates of hundreds of uneven jobs take longer than the first jobs' time-out."""
    wide(slurm, 800)
    place = slurm.place

    def slow(placement: Placement) -> None:
        slurm.sleep(0.1)
        place(placement)

    slurm.place = slow  # type: ignore[method-assign]
    steps = [start(slurm.add(i), **{f"n{2 * i}": 2}) for i in range(250)]
    steps += [start(slurm.add(400 + i), **{f"n{2 * i}": 3, f"n{2 * i + 1}": 1}) for i in range(250)]
    assert statuses(port(slurm).apply(steps)) == [OutcomeStatus.DONE] * 500


def test_jobs_are_not_blamed_for_a_slurm_that_starts_nothing(slurm: FakeSlurm) -> None:
    """Regression: a scheduler that stood still for 30 s cost each job its nodes for a minute, and a
    measuring run a day.
    """
    jobs = [slurm.add(i) for i in range(2)]
    slurm.begins = dict.fromkeys(jobs, 500.0)
    site, steps = port(slurm), [start(job, n0=1) for job in jobs]
    outcomes = site.apply(steps)
    assert statuses(outcomes) == [OutcomeStatus.PUT_OFF] * 2
    assert "Slurm has not considered it yet" in outcomes[0].error
    assert slurm.now < 1040.0
    assert statuses(site.apply(steps)) == [OutcomeStatus.FAILED] * 2


def test_one_slow_answer_does_not_stop_polling(slurm: FakeSlurm) -> None:
    """On a small site, slurmctld may have a hiccup."""
    job = slurm.running(1, n0=2)
    jobs, slow = slurm.jobs, 25.0

    def hiccup() -> Sequence[JobReading]:
        nonlocal slow
        jobs_read = jobs()
        if "signal" in slurm.writes():
            slurm.sleep(slow)
            slow = 0.05
        return jobs_read

    slurm.jobs = hiccup  # type: ignore[method-assign]
    slurm.on_signal = lambda job: cleans_up(
        slurm, job, 26.0, state=SlurmState.PENDING, hold=Hold.HOPS
    )
    [outcome] = port(slurm, grace_seconds=90.0).apply([preempt(job)])
    assert outcome.vacated is not None
    assert outcome.vacated < 1032.0


def test_slow_answers_are_requested_less_often(slurm: FakeSlurm) -> None:
    """squeue takes seconds for thousands of jobs."""
    job = slurm.add(1)
    slurm.begins = {job: 25.0}
    glance, looks = slurm.glance, []

    def slow(jobs: Collection[JobId]) -> Mapping[JobId, JobReading]:
        looks.append(slurm.now)
        slurm.sleep(4.0)
        return glance(jobs)

    slurm.glance = slow  # type: ignore[method-assign]
    assert statuses(port(slurm).apply([start(job, n0=1)])) == [OutcomeStatus.DONE]
    assert all(after - before >= 8.0 for before, after in pairwise(looks[1:]))


def test_jobs_that_still_wait_are_only_polled_cheaply(slurm: FakeSlurm) -> None:
    """A reading of all jobs costs 25 times as much: one before the release, one for the result."""
    job = slurm.add(1)
    slurm.begins = {job: 5.0}
    assert statuses(port(slurm).apply([start(job, n0=1)])) == [OutcomeStatus.DONE]
    assert slurm.readings == 2


def test_jobs_that_start_in_sequence_are_read_back_together(slurm: FakeSlurm) -> None:
    """Regression: each job was read as soon as it started; for 15,000 jobs that takes seconds."""
    jobs = [slurm.add(i) for i in range(20)]
    start_in_sequence(slurm, 0.5)
    read_jobs = slurm.jobs

    def slow() -> Sequence[JobReading]:
        slurm.sleep(2.0)
        return read_jobs()

    slurm.jobs = slow  # type: ignore[method-assign]
    outcomes = port(slurm).apply([start(job, **{f"n{int(job) // 8}": 1}) for job in jobs])
    assert statuses(outcomes) == [OutcomeStatus.DONE] * 20
    assert slurm.readings <= 8


def test_started_jobs_are_reported_even_if_most_others_do_not_start(slurm: FakeSlurm) -> None:
    jobs = [slurm.add(i) for i in range(8)]
    slurm.begins = dict.fromkeys(jobs[1:], 1e9)
    outcomes = port(slurm).apply([start(job, n0=1) for job in jobs])
    assert [o.status for o in outcomes].count(OutcomeStatus.DONE) == 1
    assert outcomes[0].status is OutcomeStatus.DONE


def test_nodes_are_not_read_for_jobs_that_slurm_has_not_considered(slurm: FakeSlurm) -> None:
    """Only a job that Slurm passed over can have lost its GPUs to another."""
    job = slurm.add(1)
    slurm.begins = {job: 20.0}
    read, nodes_read = slurm.read, []

    def count_read() -> Reading:
        nodes_read.append(slurm.now)
        return read()

    slurm.read = count_read  # type: ignore[method-assign]
    assert statuses(port(slurm).apply([start(job, n0=1)])) == [OutcomeStatus.DONE]
    assert len(nodes_read) == 1


def test_gpus_lost_before_slurm_considered_the_job_are_noticed_then(slurm: FakeSlurm) -> None:
    """Regression: the nodes were checked six seconds after the release, or not at all."""
    job = slurm.add(1)
    place = slurm.place

    def place_too_late(placement: Placement) -> None:
        place(placement)
        slurm.nodes = (replace(slurm.nodes[0], foreign_gpus=7), *slurm.nodes[1:])

    slurm.place = place_too_late  # type: ignore[method-assign]
    slurm.begins = {job: 8.0}
    slurm._run = lambda j: slurm.change(j, reason="Resources")  # type: ignore[method-assign]
    assert statuses(port(slurm).apply([start(job, n0=2)])) == [OutcomeStatus.FAILED]
    assert slurm.now < 1012.0


def test_gpus_lost_after_the_check_are_noticed(slurm: FakeSlurm) -> None:
    """Slurm passed it over for a plain job that had waited longer, and that took its GPUs later."""
    job = slurm.add(1)

    def takes() -> None:
        slurm.nodes = (replace(slurm.nodes[0], foreign_gpus=7), *slurm.nodes[1:])

    slurm.later.append((1010.0, takes))
    slurm._run = lambda j: slurm.change(j, reason="Priority")  # type: ignore[method-assign]
    assert statuses(port(slurm).apply([start(job, n0=2)])) == [OutcomeStatus.FAILED]
    assert slurm.now < 1018.0


def test_nodes_of_jobs_that_wait_for_others_are_not_read_all_the_time(slurm: FakeSlurm) -> None:
    """With thousands of nodes a reading takes seconds."""
    job = slurm.add(1)
    read, took = slurm.read, 0.0

    def slow() -> Reading:
        nonlocal took
        took += 3.0
        slurm.sleep(3.0)
        return read()

    slurm.read = slow  # type: ignore[method-assign]
    slurm._run = lambda j: slurm.change(j, reason="Priority")  # type: ignore[method-assign]
    assert statuses(port(slurm).apply([start(job, n0=2)])) == [OutcomeStatus.FAILED]
    assert took <= 3.0 + 9.0


def test_a_short_run_is_reported_as_started(slurm: FakeSlurm) -> None:
    """Regression: its result waited six seconds for other jobs; by then it had ended."""
    jobs = [slurm.add(i) for i in range(8)]
    slurm.begins = dict.fromkeys(jobs[1:], 1e9)
    run = slurm._run

    def end(job: JobId) -> None:
        slurm.change(job, state=SlurmState.COMPLETED, allocation=Allocation())

    def run_shortly(job: JobId) -> None:
        run(job)
        slurm.later.append((slurm.now + 4.0, lambda: end(job)))

    slurm._run = run_shortly  # type: ignore[method-assign]
    outcomes = port(slurm).apply([start(job, n0=1) for job in jobs])
    assert outcomes[0].status is OutcomeStatus.DONE


def test_many_holds_before_a_start_do_not_make_it_stale(slurm: FakeSlurm) -> None:
    """Regression: a node drains meanwhile, and the start was released on it."""
    held_jobs = [slurm.add(i, hold=Hold.NONE) for i in range(100)]
    job = slurm.add(200)
    quick = slurm.hold

    def slow(job: JobId, begin: float = 0.0) -> None:
        quick(job, begin)
        slurm.sleep(0.1)

    def drain() -> None:
        slurm.nodes = (replace(slurm.nodes[0], usable=False), *slurm.nodes[1:])

    slurm.hold = slow  # type: ignore[method-assign]
    slurm.later.append((1005.0, drain))
    port(slurm).apply([*map(hold, held_jobs), start(job, n0=2)])
    assert "release" not in slurm.writes()


def test_a_pending_job_is_held_once(slurm: FakeSlurm) -> None:
    job = slurm.add(1, hold=Hold.NONE)
    port(slurm).apply([start(job, n0=2)])
    assert slurm.writes() == ["hold", "place", "release"]


def test_steps_that_start_nothing_need_no_nodes(slurm: FakeSlurm) -> None:
    """slurmctld has just started: it knows its jobs, but not its nodes yet."""

    def unheard() -> Reading:
        raise SlurmUnavailableError("slurmctld has not heard from n1")

    slurm.read = unheard  # type: ignore[method-assign]
    outcomes = port(slurm).apply([preempt(slurm.running(1, n0=2))])
    assert statuses(outcomes) == [OutcomeStatus.DONE]


@pytest.mark.parametrize("state", [None, SlurmState.RUNNING])
def test_a_poll_alone_decides_nothing(slurm: FakeSlurm, state: SlurmState | None) -> None:
    job = slurm.add(1)
    slurm.begins = {job: 5.0}

    def poll_wrongly(jobs: Collection[JobId]) -> Mapping[JobId, JobReading]:
        return {j: replace(slurm.table[j], state=state) for j in jobs if state is not None}

    slurm.glance = poll_wrongly  # type: ignore[method-assign]
    outcomes = port(slurm).apply([start(job, n0=1)])
    assert statuses(outcomes) == [OutcomeStatus.DONE]
    assert slurm.now >= 1005.0


def test_an_empty_poll_delays_only_until_the_time_out(slurm: FakeSlurm) -> None:
    job = slurm.add(1)

    def blind(jobs: Collection[JobId]) -> Mapping[JobId, JobReading]:
        waiting = {"state": SlurmState.PENDING, "hold": Hold.NONE}
        return {j: replace(slurm.table[j], **waiting) for j in jobs}  # type: ignore[arg-type]

    slurm.glance = blind  # type: ignore[method-assign]
    assert statuses(port(slurm).apply([start(job, n0=1)])) == [OutcomeStatus.DONE]


@pytest.mark.slow
def test_an_uneven_job_at_the_head_of_the_queue_is_not_postponed(slurm: FakeSlurm) -> None:
    """Regression: even jobs were released first, as long as there were any."""
    wide(slurm, 500)
    start_in_sequence(slurm, 0.1)
    steps = [start(slurm.add(1), n0=8, n1=2)]
    steps += [start(slurm.add(100 + i), **{f"n{10 + i // 8}": 1}) for i in range(3000)]
    first, *later_statuses = statuses(port(slurm).apply(steps))
    assert first is OutcomeStatus.DONE
    assert OutcomeStatus.PUT_OFF in later_statuses


@pytest.mark.slow
def test_jobs_stopped_to_move_restart_before_others_start(slurm: FakeSlurm) -> None:
    """Regression: such jobs are last in the queue, so new jobs on freed nodes kept them waiting."""
    wide(slurm, 500)
    moving_jobs = [slurm.running(i, **{f"n{i}": 8}) for i in range(8)]
    steps = [preempt(slurm.running(10000 + i, **{f"n{10 + i}": 8})) for i in range(250)]
    steps += [start(slurm.add(100 + i), **{f"n{10 + i // 8}": 1}) for i in range(2000)]
    steps += [move(job, **{f"n{400 + i}": 8}) for i, job in enumerate(moving_jobs)]
    start_in_sequence(slurm, 0.1)
    outcomes = port(slurm).apply(steps)
    assert statuses(outcomes)[-8:] == [OutcomeStatus.DONE] * 8
    assert all(o.started - (o.vacated or 0.0) < 5.0 for o in outcomes[-8:])
    start_times = [o.started for o in outcomes if o.step.kind is StepKind.START and o.started]
    assert min(start_times) >= max(o.started for o in outcomes[-8:])
    assert slurm.now < 1010.0 + VACATED_SECONDS + 2 * RELEASING_SECONDS


def test_jobs_stopped_to_move_are_not_postponed_behind_one_that_does_not_start(
    slurm: FakeSlurm,
) -> None:
    wide(slurm, 500)
    moving_jobs = [slurm.running(i, **{f"n{i}": 8}) for i in range(4)]
    jobs = [slurm.add(100 + i, reason="Priority") for i in range(420)]
    ran = slurm._run
    slurm._run = lambda job: None if job in jobs else ran(job)  # type: ignore[method-assign]
    steps = [preempt(slurm.running(10000 + i, **{f"n{10 + i}": 8})) for i in range(60)]
    steps += [start(job, **{f"n{10 + i // 8}": 1}) for i, job in enumerate(jobs)]
    steps += [move(job, **{f"n{400 + i}": 8}) for i, job in enumerate(moving_jobs)]
    assert statuses(port(slurm).apply(steps))[-4:] == [OutcomeStatus.DONE] * 4


@pytest.mark.slow
def test_gpus_freed_by_stopped_jobs_do_not_stay_idle(slurm: FakeSlurm) -> None:
    """Regression: the jobs that the GPUs were meant for were postponed after a minute."""
    wide(slurm, 200)
    victims = [slurm.running(10000 + i, **{f"n{i}": 8}) for i in range(125)]
    steps = [preempt(job) for job in victims]
    steps += [start(slurm.add(i), **{f"n{i // 8}": 1}) for i in range(1000)]
    start_in_sequence(slurm, 0.15)
    assert set(statuses(port(slurm).apply(steps))) == {OutcomeStatus.DONE}


def steps_with_unconsidered_job(slurm: FakeSlurm, bad: JobId) -> list[Step]:
    """A start that Slurm never considers, and many others that it begins meanwhile."""
    wide(slurm, 200)
    start_in_sequence(slurm, 0.15)
    ran = slurm._run
    slurm._run = lambda job: None if job == bad else ran(job)  # type: ignore[method-assign]
    numbers = range(1000, 1900)
    later_starts = [start(slurm.add(i), **{f"n{10 + (i - 1000) // 8}": 1}) for i in numbers]
    return [start(bad, n0=8), *later_starts]


@pytest.mark.slow
def test_a_job_that_slurm_never_considers_fails_the_second_time(slurm: FakeSlurm) -> None:
    """Regression: each plan postponed the job again, and its GPUs stayed idle."""
    bad, site = slurm.add(1), port(slurm)
    outcome_statuses = []
    for _ in range(2):
        outcome_statuses += statuses(site.apply(steps_with_unconsidered_job(slurm, bad)))[:1]
    assert outcome_statuses == [OutcomeStatus.PUT_OFF, OutcomeStatus.FAILED]


@pytest.mark.slow
def test_a_refused_hold_is_reported(slurm: FakeSlurm) -> None:
    """Slurm may start the job at any time, so its step is not postponed."""
    steps = steps_with_unconsidered_job(slurm, slurm.add(1))
    slurm.refuse.add("hold")
    first, *_ = port(slurm).apply(steps)
    assert first.status is OutcomeStatus.FAILED
    assert "hold refused" in first.error


@pytest.mark.parametrize("has_ended", [False, True], ids=["started", "cancelled"])
def test_a_job_that_changed_before_its_hold_is_reported_as_it_is(
    slurm: FakeSlurm, has_ended: bool
) -> None:
    """Regression: a job that began just as it was to be held was FAILED, but ran as planned."""
    job, run = slurm.add(1), slurm._run
    slurm.begins = {job: 1e9}

    def hold_late(job: JobId, begin: float = 0.0) -> None:
        if has_ended:
            slurm.change(job, state=SlurmState.CANCELLED, hold=Hold.NONE)
        else:
            run(job)
        raise SlurmError("Job is no longer pending execution")

    slurm.hold = hold_late  # type: ignore[method-assign]
    [outcome] = port(slurm).apply([start(job, n0=2)])
    assert outcome.status is (OutcomeStatus.GONE if has_ended else OutcomeStatus.DONE)
    assert outcome.actual == slurm.table[job].allocation


@pytest.mark.slow
def test_a_postponed_job_is_held(slurm: FakeSlurm) -> None:
    """A job that is not held could start anywhere, on GPUs that are planned for others."""
    wide(slurm, 600)
    start_in_sequence(slurm, 0.1)
    loose = slurm.add(9000, hold=Hold.NONE)
    steps = [start(slurm.add(i), **{f"n{i // 8}": 1}) for i in range(3000)]
    *_, last = port(slurm).apply([*steps, start(loose, n500=1)])
    assert last.status is OutcomeStatus.PUT_OFF
    assert slurm.table[loose].hold is Hold.HOPS


@pytest.mark.long
@pytest.mark.slow
def test_an_uneven_move_is_not_blamed_for_a_postponed_start(slurm: FakeSlurm) -> None:
    """The move gets the planned shape only once that start has filled its node."""
    wide(slurm, 600)
    start_in_sequence(slurm, 0.2)
    mover, filler = slurm.running(1, n500=5), slurm.add(5000)
    steps = [preempt(slurm.running(20000 + i, **{f"n{i}": 8})) for i in range(200)]
    steps += [start(slurm.add(100 + i), **{f"n{i // 8}": 1}) for i in range(1600)]
    steps += [preempt(slurm.running(30000, n400=8))]
    steps += [start(filler, n400=5), move(mover, n400=3, n401=2)]
    assert statuses(port(slurm).apply(steps))[-2:] == [OutcomeStatus.PUT_OFF] * 2


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.03, 0.3])
def test_a_job_is_released_soon_after_its_placement(slurm: FakeSlurm, seconds: float) -> None:
    """The submit plugin detects a hold in between for a minute, and the first jobs start early. No
    more jobs are released after the time bound, even if Slurm takes long for each.
    """
    wide(slurm, 500)
    placed_at: dict[JobId, float] = {}
    lags = []
    place, release = slurm.place, slurm.release

    def slow_place(placement: Placement) -> None:
        slurm.sleep(seconds)
        placed_at[placement.job] = slurm.now
        place(placement)

    def slow_release(jobs: Sequence[JobId]) -> None:
        slurm.sleep(seconds * len(jobs))
        lags.extend(slurm.now - placed_at[job] for job in jobs)
        release(jobs)

    slurm.place, slurm.release = slow_place, slow_release  # type: ignore[method-assign]
    port(slurm).apply([start(slurm.add(i), **{f"n{i // 8}": 1}) for i in range(2000)])
    assert max(lags) < 2 * 50 * seconds + 1.0
    bound = 1000.0 + RELEASING_SECONDS + 2 * 50 * seconds + 1.0
    assert max(slurm.released_at.values()) < bound

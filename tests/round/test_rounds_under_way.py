"""Rounds while steps are under way: hopsd plans for other jobs, and continues after a restart."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from fake_slurm import NODES, FakeSlurm
from hypothesis import given
from hypothesis import strategies as st
from memory_store import MemoryStore

from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName, WorkloadName
from hopsd.model.job import ThroughputTable
from hopsd.model.plan import Plan, PlanSettings
from hopsd.model.reading import Hold, JobReading, NodeReading, Reading, SlurmState
from hopsd.model.script_options import ScriptOptions
from hopsd.model.step import OutcomeStatus, Phase, Step, StepKind, Transition
from hopsd.policies.hops.policy import plan as hops
from hopsd.round.observe import observe
from hopsd.round.recover import recover
from hopsd.round.run import run_round
from hopsd.round.settings import RoundSettings
from hopsd.round.under_way import COMPLETING_SECONDS, carry_on, planning_reading, read_settled
from hopsd.round.window import RoundWindow
from hopsd.slurm.apply import SlurmPort
from hopsd.slurm.watch import ApplySettings
from hopsd.store.port import PlanRecord

SETTINGS = RoundSettings(seconds=600.0, plan=PlanSettings(time_limit_seconds=5.0))
REFRESH = 3.0


def store() -> MemoryStore:
    table = ThroughputTable({1: 100.0, 8: 90.0}, {2: 80.0})
    return MemoryStore(tables={WorkloadName("w"): {GpuType("t"): table}})


def port(slurm: FakeSlurm) -> SlurmPort:
    settings = ApplySettings(grace_seconds=10.0, poll_seconds=0.5, patience_seconds=3.0)
    return SlurmPort(
        slurm, settings, clock=lambda: slurm.now, monotonic=lambda: slurm.now, sleep=slurm.sleep
    )


def submit(slurm: FakeSlurm, number: int, gpus: int) -> JobId:
    comment = f"hops:reqs={gpus};workload=w"
    return slurm.add(number, comment=comment, submit=slurm.now, time_limit_seconds=3600.0)


def stubborn_job(slurm: FakeSlurm) -> JobReading:
    """A job on n0 that was asked to leave. It asks for 300 s, and ignores the signal."""
    job = slurm.running(1, n0=8)
    options = ScriptOptions(signal="USR1", signal_seconds=300)
    slurm.change(job, comment="hops:reqs=8;workload=w", options=options, start=slurm.now)
    return slurm.table[job]


def begin(slurm: FakeSlurm, site: SlurmPort, memory: MemoryStore, *steps: Step) -> None:
    """Record a plan of these steps and begin it, as a round does."""
    targets = {step.job: step.target for step in steps if step.target}
    record = PlanRecord(slurm.now, slurm.now + 600.0, True, slurm.now, Plan(targets), steps)
    plan = memory.begin_plan(record)
    outcomes = site.apply(steps)
    memory.save_transitions(site.under_way)
    memory.finish_plan(plan, outcomes, slurm.now)


def preempt(job: JobReading) -> Step:
    return Step(job.id, StepKind.PREEMPT, current=job.allocation)


@pytest.mark.parametrize(("end_state", "readings"), [(None, 1), ("another", 1), ("itself", 2)])
def test_slurm_is_read_again_only_after_a_leaving_job_has_ended(
    monkeypatch: pytest.MonkeyPatch, end_state: str | None, readings: int
) -> None:
    slurm, memory = FakeSlurm(), store()
    leaving, second_job = stubborn_job(slurm), slurm.running(2, n1=8)
    site = port(slurm)
    begin(slurm, site, memory, preempt(leaving))
    if end_state is not None:
        job = {"itself": leaving.id, "another": second_job}[end_state]
        slurm.change(job, state=SlurmState.FAILED, exit_signal=10, allocation=Allocation())
    times_read = []
    read = site.read
    monkeypatch.setattr(site, "read", lambda: times_read.append(slurm.now) or read())
    read_settled(site, memory)
    assert len(times_read) == readings


@pytest.mark.slow
def test_a_job_that_ignores_its_signal_blocks_nobody() -> None:
    """Regression: others' one-GPU jobs waited up to 320 s beside idle GPUs."""
    slurm, memory = FakeSlurm(), store()
    site, job = port(slurm), stubborn_job(slurm)
    begin(slurm, site, memory, preempt(job))
    window, gaps, number = RoundWindow(slurm.now, slurm.now + 600.0), [], 10
    while slurm.now < 1290.0:
        if number < 20:
            submit(slurm, number, 1)
            number += 1
        begin_time = slurm.now
        result = run_round(site, memory, hops, SETTINGS, window)
        window = result.window
        assert "USR1" in result.plan.waiting[job.id].text
        slurm.sleep(REFRESH)
        gaps.append(slurm.now - begin_time)
    assert max(gaps) <= 10.0
    assert all(slurm.table[JobId(str(n))].state is SlurmState.RUNNING for n in range(10, number))
    assert slurm.table[job.id].state is SlurmState.RUNNING
    slurm.sleep(20.0)
    outcomes = carry_on(site, memory)
    while site.under_way:
        slurm.sleep(1.0)
        outcomes += carry_on(site, memory)
    assert [outcome.status for outcome in outcomes] == [OutcomeStatus.DONE]
    assert memory.transitions() == ()
    assert memory.last_outcomes([job.id])[job.id].status is OutcomeStatus.DONE


@pytest.mark.slow
def test_gpus_promised_to_a_job_are_given_to_no_other() -> None:
    slurm, memory = FakeSlurm(), store()
    site, job, heir = port(slurm), stubborn_job(slurm), submit(slurm, 2, 8)
    target = Allocation.of({NodeName("n0"): 8})
    begin(slurm, site, memory, preempt(job), Step(heir, StepKind.START, target=target))
    submit(slurm, 3, 8), submit(slurm, 4, 8), submit(slurm, 5, 8)
    window = RoundWindow(slurm.now, slurm.now + 600.0)
    while site.under_way or slurm.now < 1310.0:
        window = run_round(site, memory, hops, SETTINGS, window).window
        slurm.sleep(REFRESH)
    assert slurm.table[heir].allocation == target
    assert slurm.writes().count("requeue_hold") == 1


def test_a_run_that_ended_before_it_was_read_back_is_in_the_history() -> None:
    """Its outcome does not have the time of its release, and a newer plan exists by then."""
    slurm, memory = FakeSlurm(), store()
    site, job = port(slurm), submit(slurm, 1, 2)
    observe(site, memory, 8)
    slurm.begins = {job: 20.0}
    target = Allocation.of({NodeName("n0"): 2})
    begin(slurm, site, memory, Step(job, StepKind.START, target=target))
    begin(slurm, site, memory)
    end_fields = {"state": SlurmState.COMPLETED, "ran_on": target.nodes, "allocation": Allocation()}
    slurm.change(job, start=slurm.now, end=slurm.now + 0.2, **end_fields)
    slurm.sleep(1.0)
    assert [outcome.status for outcome in carry_on(site, memory)] == [OutcomeStatus.GONE]
    observe(site, memory, 8)
    assert [placement.allocation for placement in memory.placements(job)] == [target]


def test_a_hopsd_killed_in_a_grace_continues_it() -> None:
    slurm, memory = FakeSlurm(), store()
    job = stubborn_job(slurm)
    begin(slurm, port(slurm), memory, preempt(job))
    slurm.sleep(30.0)
    second_port = port(slurm)
    assert recover(second_port, memory, 8) is None
    assert [transition.phase for transition in second_port.under_way] == [Phase.LEAVING]
    window = RoundWindow(slurm.now, slurm.now + 600.0)
    while second_port.under_way:
        run_round(second_port, memory, hops, SETTINGS, window)
        slurm.sleep(REFRESH)
    assert slurm.writes().count("signal") == 1
    assert slurm.writes().count("requeue_hold") == slurm.table[job.id].restarts == 1


def test_a_job_ended_by_our_signal_is_requeued_before_it_is_recorded() -> None:
    slurm, memory = FakeSlurm(), store()
    site, job = port(slurm), stubborn_job(slurm)
    run_round(site, memory, hops, SETTINGS, None)
    begin(slurm, site, memory, preempt(job))
    slurm.change(job.id, state=SlurmState.FAILED, exit_signal=10, allocation=Allocation())
    run_round(site, memory, hops, SETTINGS, RoundWindow(slurm.now, slurm.now + 600.0))
    assert slurm.table[job.id].state is not SlurmState.FAILED
    assert memory.jobs()[job.id].end is None


def test_a_run_ended_by_our_signal_teaches_no_run_time() -> None:
    """Regression: after a handler that exits 0, an hour's workload was expected to take 23 s."""
    slurm, memory = FakeSlurm(), store()
    site, job = port(slurm), stubborn_job(slurm)
    run_round(site, memory, hops, SETTINGS, None)
    begin(slurm, site, memory, preempt(job))
    end_state = {"state": SlurmState.COMPLETED, "allocation": Allocation(), "end": slurm.now}
    slurm.change(job.id, **end_state)
    result = run_round(site, memory, hops, SETTINGS, RoundWindow(slurm.now, slurm.now + 600.0))
    assert [outcome.warned > 0.0 for outcome in result.outcomes] == [True]
    submit(slurm, 2, 8)
    assert memory.knowledge().runs == ()


def test_a_new_job_with_the_same_number_is_not_mistaken_for_the_leaving_one() -> None:
    slurm, memory = FakeSlurm(), store()
    site, job = port(slurm), stubborn_job(slurm)
    run_round(site, memory, hops, SETTINGS, None)
    begin(slurm, site, memory, preempt(job))
    slurm.change(job.id, submit=slurm.now + 5.0)
    slurm.sleep(10.0)
    second_port = port(slurm)
    recover(second_port, memory, 8)
    assert second_port.under_way == ()


def test_a_node_that_completes_for_minutes_has_no_idle_gpus() -> None:
    node = NodeReading(NodeName("n0"), GpuType("t"), 8, 32, foreign_gpus=2)
    short = replace(node, completing_seconds=COMPLETING_SECONDS / 2)
    long = replace(node, completing_seconds=2 * COMPLETING_SECONDS)
    assert planning_reading(Reading(0.0, (short,), ()), ()).nodes == (short,)
    (busy,) = planning_reading(Reading(0.0, (long,), ()), ()).nodes
    assert busy.foreign_gpus == 8


GPUS = st.dictionaries(st.sampled_from(NODES), st.integers(1, 8), min_size=1, max_size=3)


@given(
    st.lists(st.tuples(st.sampled_from(Phase), GPUS, GPUS), max_size=4),
    st.lists(GPUS, max_size=2),
)
def test_no_gpu_of_an_open_transition_counts_as_idle(
    steps: list[tuple[Phase, dict[NodeName, int], dict[NodeName, int]]],
    allocations_of_others: list[dict[NodeName, int]],
) -> None:
    """Plans must not see a GPU as idle if it is taken now or is for a job under way."""
    slurm = FakeSlurm()
    transitions, present_gpus, claimed_gpus, starting_gpus = (
        [],
        Counter[str](),
        Counter[str](),
        Counter[str](),
    )
    for number, (phase, now, target_gpus) in enumerate(steps):
        current, target = Allocation.of(now), Allocation.of(target_gpus)
        if phase.on_nodes:
            job = slurm.running(number, **now)
            present_gpus.update(now)
        else:
            job = slurm.add(number)
        step = Step(job, StepKind.MOVE, current, target)
        transitions.append(Transition(step, phase))
        if phase is not Phase.DEFERRED:
            (starting_gpus if phase is Phase.STARTING else claimed_gpus).update(target_gpus)
    for number, gpus in enumerate(allocations_of_others, start=100):
        slurm.running(number, **gpus)
        present_gpus.update(gpus)
    leaving_gpus = Counter[str]()
    for phase, now, _ in steps:
        leaving_gpus.update(now if phase.on_nodes else {})
    view = planning_reading(slurm.cluster(), transitions)
    for node in view.nodes:
        busy_gpus = sum(job.allocation.on(node.name) for job in view.jobs) + node.foreign_gpus
        kept_gpus = present_gpus[node.name] - leaving_gpus[node.name]
        least_busy = (
            kept_gpus
            + starting_gpus[node.name]
            + max(claimed_gpus[node.name], leaving_gpus[node.name])
        )
        assert busy_gpus == least_busy


@pytest.mark.parametrize("phase", Phase)
def test_plans_without_transitions_use_slurms_state(phase: Phase) -> None:
    slurm = FakeSlurm()
    slurm.running(1, n0=4)
    assert planning_reading(slurm.cluster(), ()) == slurm.cluster()
    job = slurm.add(2)
    step = Step(job, StepKind.START, target=Allocation.of({"n1": 4}))
    view = planning_reading(slurm.cluster(), [Transition(step, phase)])
    idle = {n.name: n.gpus - sum(j.allocation.on(n.name) for j in view.jobs) for n in view.nodes}
    assert idle["n1"] == (8 if phase is Phase.DEFERRED else 4)


@pytest.mark.parametrize("is_reported", [False, True])
def test_a_restarted_hopsd_tells_a_persons_requeuehold_from_its_own(*, is_reported: bool) -> None:
    """A requeue that it saw reported was its own: a person's would be marked as a hold by then."""
    slurm, memory = FakeSlurm(), store()
    job = slurm.running(1, n0=8)
    slurm.change(job, comment="hops:reqs=8;workload=w", start=slurm.now)
    observe(port(slurm), memory, 8)
    slurm.requeue_hold(job)
    if is_reported:
        observe(port(slurm), memory, 8)
    second_port = port(slurm)
    recover(second_port, memory, 8)
    [read] = second_port.read().jobs
    assert read.hold is (Hold.HOPS if is_reported else Hold.USER)


def test_a_hopsd_that_leads_again_recognises_requeues_by_the_other_one() -> None:
    slurm, memory = FakeSlurm(), store()
    job = slurm.running(1, n0=8)
    slurm.change(job, comment="hops:reqs=8;workload=w")
    first_port = port(slurm)
    recover(first_port, memory, 8)
    # Meanwhile the other hopsd led, requeued the job, and could not clear the time that Slurm set.
    slurm.requeue_hold(job)
    places = [Allocation({NodeName(node): 8}) for node in ("n0", "n1")]
    step = Step(job, StepKind.MOVE, *places)
    memory.save_transitions([Transition(step, Phase.WAITING)])
    recover(first_port, memory, 8)
    (read,) = first_port.read().jobs
    assert read.hold is not Hold.USER
    assert not slurm.table[job].requeued_held

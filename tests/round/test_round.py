"""Rounds with a cluster in memory: the same code as the daemon's, interrupted at any point."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_cluster import NODES, Cluster, cluster, comment, store, submission
from memory_store import MemoryStore

from hopsd.core.queue.backoff import Backoff, after_outcomes, avoided_nodes, backing_off
from hopsd.core.queue.profile_runs import ProfilingSettings
from hopsd.core.snapshot.pinning import Unsaved
from hopsd.core.snapshot.settings import SnapshotSettings
from hopsd.core.submission.options_text import read_script_options
from hopsd.errors import SlurmUnavailableError
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId, NodeName, RackName
from hopsd.model.knowledge import Knowledge
from hopsd.model.plan import Plan, PlanSettings
from hopsd.model.reading import RELEASED_MARK, Hold, SlurmState
from hopsd.model.reason import ReasonCode
from hopsd.model.step import OutcomeStatus, Step, StepKind, StepOutcome
from hopsd.policies.hops.policy import plan as hops
from hopsd.policies.registry import get
from hopsd.round.observe import observe
from hopsd.round.recover import recover
from hopsd.round.run import run_round
from hopsd.round.settings import RoundSettings
from hopsd.round.window import RoundWindow
from hopsd.serve.status import Service, document
from hopsd.store.port import PlanRecord

SETTINGS = RoundSettings(seconds=60.0, plan=PlanSettings(time_limit_seconds=5.0))


SERVICE = Service("active", "memory", "", "", 1, 0)


def test_a_second_round_leaves_a_good_plan_unchanged() -> None:
    port, memory = cluster(comment(4), comment(4), comment(4)), store()
    first = run_round(port, memory, hops, SETTINGS, None)
    assert first.first
    assert sorted(a.nodes for a in port.placements().values()) == [("n0",), ("n1",), ("n2",)]
    port.now += 60.0
    second = run_round(port, memory, hops, SETTINGS, first.window)
    assert second.first
    assert second.outcomes == ()
    assert len(port.started) == 3


def test_within_a_round_idle_gpus_go_to_waiting_jobs_and_running_jobs_stay() -> None:
    port, memory = cluster(comment(4), comment(4)), store()
    first = run_round(port, memory, hops, SETTINGS, None)
    before = port.placements()
    port.now += 20.0
    port.jobs[JobId("9")] = submission(9, comment(1, 2), submit=1010.0)
    further = run_round(port, memory, hops, SETTINGS, first.window)
    assert not further.first
    assert further.window == first.window
    after = port.placements()
    assert {job: after[job] for job in before} == before
    assert after[JobId("9")].gpus == 2


def test_a_pinned_job_stays_and_a_bad_comment_harms_nobody_else() -> None:
    port = cluster(comment(4, extra=";preempt=no"), comment(4), "hops:reqs=0")
    memory = store()
    window = run_round(port, memory, hops, SETTINGS, None).window
    pinned_allocation = port.placements()[JobId("1")]
    for _ in range(3):
        port.now += 60.0
        result = run_round(port, memory, hops, SETTINGS, window)
        window = result.window
        assert port.placements()[JobId("1")] == pinned_allocation
    assert result.plan.waiting[JobId("3")].code is ReasonCode.ERROR
    assert "reqs" in result.plan.waiting[JobId("3")].text


def test_a_job_on_a_drained_node_may_finish_there() -> None:
    port, memory = cluster(comment(4)), store()
    window = run_round(port, memory, hops, SETTINGS, None).window
    allocation = port.placements()[JobId("1")]
    port.nodes = tuple(replace(n, usable=n.name not in allocation.nodes) for n in NODES)
    port.now += 60.0
    run_round(port, memory, hops, SETTINGS, window)
    assert port.placements() == {JobId("1"): allocation}


def test_a_released_job_is_left_to_slurm_but_its_gpus_count() -> None:
    port, memory = cluster(comment(4), comment(4), comment(4)), store()
    run_round(port, memory, hops, SETTINGS, None)
    memory.save_jobs([replace(memory.jobs()[JobId("1")], released=True)])
    port.now += 60.0
    port.jobs[JobId("9")] = submission(9, comment(8), submit=1010.0)
    result = run_round(port, memory, hops, SETTINGS, None)
    assert JobId("1") not in {job.id for job in result.build.snapshot.jobs}
    assert sum(node.idle for node in result.build.snapshot.nodes) == 0


def test_the_reason_names_what_holds_a_job_back() -> None:
    port, memory = cluster(comment(1), comment(1), comment(1)), store()
    reasons_to_wait: list[dict[str, Any]] = [
        {"begin": 4e9},
        {"hold": Hold.USER},
        {"dependency": True, "waits_for": "afterok:17"},
    ]
    changes_by_job = zip(port.jobs, reasons_to_wait, strict=True)
    port.jobs = {
        job: replace(port.jobs[job], **reasons_to_wait) for job, reasons_to_wait in changes_by_job
    }
    result = run_round(port, memory, hops, SETTINGS, None)
    rows = {row["id"]: row for row in document(SERVICE, result.observation, result)["waiting"]}
    assert [rows[job]["reason"] for job in port.jobs] == [
        f"may not begin before {datetime.fromtimestamp(4e9, UTC).astimezone():%Y-%m-%d %H:%M:%S}",
        "held by its user or an operator",
        "depends on other jobs (afterok:17)",
    ]


def test_restarts_are_counted_by_the_hours_of_run_time() -> None:
    port, memory = cluster(comment(1), comment(1)), store()
    observation = run_round(port, memory, hops, SETTINGS, None).observation
    assert document(SERVICE, observation, None)["restarts_per_job_hour"] is None
    run_times = [(3, 3600.0), (1, 1800.0 + 3600.0 * 1.5)]
    records = {
        job: replace(record, restarts=restarts, run_seconds=seconds)
        for (job, record), (restarts, seconds) in zip(
            observation.records.items(), run_times, strict=True
        )
    }
    later = replace(observation, records=records)
    assert document(SERVICE, later, None)["restarts_per_job_hour"] == pytest.approx(4 / 3)


def test_a_backing_off_job_is_shown_with_its_request() -> None:
    port, memory = cluster("hops:reqs=1,4;samples=1000"), store()
    job = next(iter(port.jobs))
    backoffs = {job: Backoff(3, port.now + 0.2, "BadConstraints")}
    result = run_round(port, memory, hops, SETTINGS, None, backoffs)
    (row,) = document(SERVICE, result.observation, result)["waiting"]
    assert (row["reqs"], row["samples"]) == ([1, 4], 1000.0)
    assert "is tried again in 1 s: BadConstraints" in row["reason"]


@pytest.mark.parametrize(("racks", "node_names"), [("rrs", ("n0", "n1")), ("rss", ("n1", "n2"))])
def test_themis_keeps_an_unmeasured_job_within_a_rack(
    racks: str, node_names: tuple[str, ...]
) -> None:
    port = cluster(comment(8))
    of_nodes = {node.name: RackName(rack) for node, rack in zip(NODES, racks, strict=True)}
    rack_settings = replace(
        SETTINGS,
        snapshot=SnapshotSettings(racks=of_nodes),
        profiling=ProfilingSettings(enabled=False),
    )
    run_round(port, MemoryStore(), get("themis"), rack_settings, None)
    assert port.placements()[JobId("1")].nodes == node_names


SETS = st.sets(st.sampled_from([1, 2, 3, 4, 6, 8]), min_size=1, max_size=4)


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(st.lists(SETS, min_size=1, max_size=8), st.integers(0, 12), st.data())
def test_interrupted_anywhere_the_next_start_finishes_the_plan_once(
    reqs: list[set[int]], breaks_after: int, data: st.DataObject
) -> None:
    port, memory = cluster(*(comment(*sorted(r)) for r in reqs)), store()
    window = run_round(port, memory, hops, SETTINGS, None).window
    port.now += 60.0
    number = len(port.jobs) + 1
    port.jobs[JobId(str(number))] = submission(number, comment(1, 2, 4), submit=100.0)
    port.breaks_after = breaks_after
    try:
        run_round(port, memory, hops, SETTINGS, window)
    except SlurmUnavailableError:
        port.breaks_after = None
        unfinished_plan = memory.unfinished_plan()
        assert unfinished_plan is not None
        placements = unfinished_plan[1].plan.placements
        assert recover(port, memory, 8) is not None
        assert memory.unfinished_plan() is None
        assert port.placements() == placements
    port.breaks_after = None
    assert recover(port, memory, 8) is None
    for job in port.jobs.values():
        if job.allocation:
            assert job.allocation.gpus in reqs[int(job.id) - 1] if int(job.id) <= len(reqs) else 1


def test_an_open_plan_of_a_past_round_is_undone_not_finished() -> None:
    port, memory = cluster(comment(4), comment(2)), store()
    port.breaks_after = 0
    with pytest.raises(SlurmUnavailableError):
        run_round(port, memory, hops, SETTINGS, None)
    port.breaks_after = None
    port.jobs[JobId("1")] = replace(port.jobs[JobId("1")], hold=Hold.NONE)
    port.now += 61.0
    outcomes = recover(port, memory, 8)
    assert outcomes is not None
    assert [(o.step.job, o.step.kind) for o in outcomes] == [("1", StepKind.HOLD)]
    assert port.placements() == {}
    assert memory.unfinished_plan() is None


def test_the_window_of_an_unfinished_round_is_resumed() -> None:
    port, memory = cluster(comment(4)), store()
    result = run_round(port, memory, hops, SETTINGS, None)
    last = memory.last_plan()
    assert last is not None
    assert RoundWindow(last.round_start, last.round_end) == result.window


def test_an_unknown_workload_is_placed() -> None:
    port = cluster("hops:reqs=1,2")
    memory = MemoryStore()
    run_round(port, memory, hops, SETTINGS, None)
    assert port.placements()[JobId("1")].gpus == 2
    assert memory.knowledge() == Knowledge()


class Choosy(Cluster):
    """Does not start jobs on the node ``full``; ``reason`` is Slurm's reason."""

    full = NodeName("n0")
    reason = "Resources"

    def apply(self, steps: Sequence[Step]) -> Sequence[StepOutcome]:
        rejected_steps = [step for step in steps if step.target.on(self.full)]
        outcomes = super().apply([step for step in steps if step not in rejected_steps])
        return [
            *outcomes,
            *(
                StepOutcome(step, OutcomeStatus.FAILED, error="late", reason=self.reason)
                for step in rejected_steps
            ),
        ]


def choosy(reason: str) -> tuple[Choosy, MemoryStore]:
    port, memory = cluster(comment(4)), store()
    choosy_port = Choosy(port.jobs)
    choosy_port.reason = reason
    return choosy_port, memory


def test_a_job_refused_by_one_node_is_tried_elsewhere_at_once() -> None:
    port, memory = choosy("Resources")
    twin = cluster(comment(4))
    run_round(twin, store(), hops, SETTINGS, None)
    (port.full,) = twin.placements()[JobId("1")].nodes
    first = run_round(port, memory, hops, SETTINGS, None)
    assert [o.status for o in first.outcomes] == [OutcomeStatus.FAILED]
    backoffs = after_outcomes({}, first.outcomes, port.now)
    second = run_round(port, memory, hops, SETTINGS, first.window, backoffs)
    assert [o.status for o in second.outcomes] == [OutcomeStatus.DONE]
    assert not port.placements()[JobId("1")].on(port.full)
    assert after_outcomes(backoffs, second.outcomes, port.now) == {}


def test_a_postponed_start_clears_no_backoff() -> None:
    """Otherwise a job that always fails would be tried again at once every other time."""
    step = Step(JobId("1"), StepKind.START, target=Allocation.of({"n0": 1}))
    failure = StepOutcome(step, OutcomeStatus.FAILED, error="Slurm gave nothing")
    backoffs = after_outcomes(after_outcomes({}, [failure], 0.0), [failure], 10.0)
    put_off = StepOutcome(step, OutcomeStatus.PUT_OFF, error="Slurm is busy")
    assert after_outcomes(backoffs, [put_off], 80.0) == backoffs


@pytest.mark.parametrize(
    ("reason", "rests", "shuns"),
    [
        ("QOSMaxGRESPerUser", True, False),
        ("BadConstraints", False, True),
        ("JobHeldUser", False, False),
    ],
)
def test_slurms_reason_decides_between_backoff_and_avoiding_the_node(
    reason: str, rests: bool, shuns: bool
) -> None:
    port, memory = choosy(reason)
    port.nodes = port.nodes[:1]
    result = run_round(port, memory, hops, SETTINGS, None)
    assert [o.status for o in result.outcomes] == [OutcomeStatus.FAILED]
    backoffs = after_outcomes({}, result.outcomes, port.now)
    assert bool(backing_off(backoffs, port.now)) == rests
    assert bool(avoided_nodes(backoffs, port.now)) == shuns
    assert not avoided_nodes(backoffs, port.now + 61.0)


def test_a_job_that_avoids_its_only_node_says_so_and_how_long() -> None:
    port, memory = choosy("BadConstraints")
    port.nodes = port.nodes[:1]
    first = run_round(port, memory, hops, SETTINGS, None)
    backoffs = after_outcomes({}, first.outcomes, port.now)
    second_round = run_round(port, memory, hops, SETTINGS, first.window, backoffs)
    reason = second_round.plan.waiting[JobId("1")]
    assert reason.code is ReasonCode.ERROR
    name, error = port.nodes[0].name, backoffs[JobId("1")].error
    assert reason.text == (
        f"Slurm did not start it on {name}, where it is tried again in 60 s;"
        f" no other node has a place for it: {error}"
    )


def test_a_job_that_slurm_will_not_start_backs_off_and_says_so() -> None:
    port, memory = cluster(comment(4), comment(4), comment(4), comment(4)), store()
    failing_job = JobId("1")
    port.jobs[failing_job] = replace(port.jobs[failing_job], submit=1.0)
    port.never = {failing_job}
    backoffs: dict[JobId, Backoff] = {}
    tries = []
    window = None
    for _ in range(10):
        result = run_round(port, memory, hops, SETTINGS, window, backoffs)
        backoffs = after_outcomes(backoffs, result.outcomes, port.now)
        window = result.window
        tries.append(failing_job in {o.step.job for o in result.outcomes})
        port.now += 30.0
    assert tries[:2] == [True, False]  # its node goes to another
    assert 3 <= sum(tries) <= 4
    assert len(port.placements()) == 3
    backoffs = {failing_job: Backoff(3, port.now + 50.0, "BadConstraints")}
    result = run_round(port, memory, hops, SETTINGS, window, backoffs)
    reason = result.plan.waiting[failing_job]
    assert reason.code is ReasonCode.ERROR
    assert "3 times in a row; it is tried again in 50 s: BadConstraints" in reason.text
    port.never = set()
    port.now += 600.0
    port.jobs[JobId("2")] = replace(port.jobs[JobId("2")], submit=port.now)
    result = run_round(port, memory, hops, SETTINGS, window, backoffs)
    assert after_outcomes(backoffs, result.outcomes, port.now) == {}


def test_a_clock_set_back_opens_a_round() -> None:
    port, memory = cluster(comment(4)), store()
    window = run_round(port, memory, hops, SETTINGS, None).window
    port.now -= 900.0
    assert run_round(port, memory, hops, SETTINGS, window).window.start == port.now


def test_a_resumed_plan_moves_no_job_to_a_lost_node() -> None:
    port, memory = cluster(comment(4)), store()
    run_round(port, memory, hops, SETTINGS, None)
    (job,) = port.jobs
    old_node = port.placements()[job].nodes[0]
    new_node = next(node for node in ("n0", "n1", "n2") if node != old_node)
    plan = Plan({job: Allocation.of({new_node: 4})})
    step = Step(job, StepKind.MOVE, port.placements()[job], plan.placements[job])
    memory.begin_plan(PlanRecord(port.now, port.now + 60.0, True, port.now, plan, (step,)))
    port.nodes = tuple(replace(n, usable=n.name != new_node) for n in NODES)
    assert recover(port, memory, 8) == ()
    assert port.placements()[job].nodes == (old_node,)
    assert memory.unfinished_plan() is None


def test_a_resumed_plan_gives_nothing_to_another_job_with_the_same_number() -> None:
    """Slurm may reuse the number if slurmctld was killed before it saved the first job."""
    port, memory = cluster(comment(4)), store()
    port.breaks_after = 0
    with pytest.raises(SlurmUnavailableError):
        run_round(port, memory, hops, SETTINGS, None)
    port.breaks_after = None
    (job,) = port.jobs
    port.jobs = {job: submission(1, comment(3), submit=port.now + 2.0)}
    port.now += 5.0
    recover(port, memory, 8)
    assert port.placements() == {}


@pytest.mark.parametrize(
    ("samples_done", "expected"),
    [(10.0, 1000.0), (1000.0, 1000.0), (2000.0, 6000.0), (5000.0, 30000.0), (1e5, 6e5)],
)
def test_a_job_that_outran_its_declared_samples_is_expected_to_double_them(
    samples_done: float, expected: float
) -> None:
    """Regression: a job that claimed too little always looked, and was ranked, as half done."""
    port, memory = cluster(comment(4) + ";samples=1000"), store()
    run_round(port, memory, hops, SETTINGS, None)
    memory.save_jobs(
        replace(record, samples_done=samples_done) for record in memory.jobs().values()
    )
    port.now += samples_done / 400.0  # four GPUs, about 100 samples/s each
    build = run_round(port, memory, hops, SETTINGS, None).build
    (job,) = build.snapshot.jobs
    assert job.samples == expected
    note = f"more than its samples=1000: it is expected to train {expected:,.0f} in all"
    assert (note in build.notes.get(job.id, "")) == (samples_done > 1000.0)


def test_a_released_job_stays_released_even_if_it_was_not_recorded() -> None:
    port, memory = cluster(comment(4)), store()
    (job,) = port.jobs
    port.jobs[job] = replace(port.jobs[job], hold=Hold.NONE, marks=RELEASED_MARK)
    result = run_round(port, memory, hops, SETTINGS, None)
    assert result.outcomes == ()
    assert memory.jobs()[job].released


def start_and_be_killed(port: Cluster, memory: MemoryStore) -> None:
    """Run a round whose steps are carried out, by a hopsd that dies before it reads them back."""
    apply = port.apply

    def started_then_killed(steps: Sequence[Step]) -> Sequence[StepOutcome]:
        apply(steps)
        raise SlurmUnavailableError("hopsd is killed before it reads back")

    port.apply = started_then_killed  # type: ignore[method-assign]
    with pytest.raises(SlurmUnavailableError):
        run_round(port, memory, hops, SETTINGS, None)
    port.apply = apply  # type: ignore[method-assign]


@pytest.mark.parametrize("state", [SlurmState.FAILED, SlurmState.COMPLETING])
def test_a_job_killed_by_the_signal_of_an_open_plan_is_requeued(state: SlurmState) -> None:
    """hopsd lost the lead or was killed between the checkpoint signal and the requeue."""
    port, memory = cluster(comment(4)), store()
    run_round(port, memory, hops, SETTINGS, None)
    observe(port, memory, 8)
    job = port.jobs[JobId("1")]
    step = Step(job.id, StepKind.MOVE, current=job.allocation, target=Allocation.of({"n2": 4}))
    plan = Plan({job.id: step.target})
    memory.begin_plan(
        PlanRecord(1000.0, 1060.0, first=True, made=port.now, plan=plan, steps=(step,))
    )
    port.jobs[job.id] = replace(job, state=state, exit_signal=10, allocation=Allocation())
    port.now += 5.0
    recover(port, memory, 8)
    assert port.placements() == {job.id: step.target}
    assert memory.jobs()[job.id].submit == job.submit


@pytest.mark.parametrize("status", [OutcomeStatus.FAILED, OutcomeStatus.DONE])
def test_a_job_killed_by_our_signal_after_the_timeout_is_requeued(status: OutcomeStatus) -> None:
    """The job's nodes took longer to clean up than stop_timeout. If the move was carried out, the
    job died of another signal than ours.
    """
    port, memory = cluster(comment(4)), store()
    run_round(port, memory, hops, SETTINGS, None)
    observe(port, memory, 8)
    job = port.jobs[JobId("1")]
    step = Step(job.id, StepKind.MOVE, current=job.allocation, target=Allocation.of({"n2": 4}))
    plan = memory.begin_plan(PlanRecord(1000.0, 1060.0, True, port.now, Plan({}), (step,)))
    memory.finish_plan(plan, [StepOutcome(step, status)], finished=1005.0)
    port.jobs[job.id] = replace(
        job, state=SlurmState.FAILED, exit_signal=10, end=port.now + 90.0, allocation=Allocation()
    )
    port.now += 100.0
    run_round(port, memory, hops, SETTINGS, None)
    died_late = status is OutcomeStatus.FAILED
    assert (port.jobs[job.id].state is SlurmState.RUNNING) is died_late
    assert (job.id in memory.jobs()) is died_late


def test_the_placement_of_a_run_that_began_and_ended_unseen_is_recorded() -> None:
    port, memory = cluster(comment(4)), store()
    port.breaks_after = 1
    start_and_be_killed(port, memory)
    job = port.jobs[JobId("1")]
    allocation = job.allocation
    ended_job = replace(job, state=SlurmState.COMPLETED, end=1005.0, ran_on=allocation.nodes)
    port.jobs[JobId("1")] = replace(ended_job, allocation=Allocation())
    port.now += 10.0
    recover(port, memory, 8)
    (placement,) = memory.placements(JobId("1"))
    assert (placement.allocation, placement.start, placement.end) == (allocation, 1000.0, 1005.0)


def test_the_placement_of_a_run_completing_while_its_plan_resumes_is_recorded() -> None:
    """Slurm has forgotten its GPUs, and a finished plan is not searched for them."""
    port, memory = cluster(comment(4)), store()
    start_and_be_killed(port, memory)
    job = port.jobs[JobId("1")]
    allocation = job.allocation
    ending_job = replace(job, allocation=Allocation(), ran_on=allocation.nodes)
    port.jobs[job.id] = replace(ending_job, state=SlurmState.COMPLETING)
    port.now += 10.0
    recover(port, memory, 8)
    port.jobs[job.id] = replace(ending_job, state=SlurmState.COMPLETED, end=1008.0)
    port.now += 10.0
    observe(port, memory, 8)
    (placement,) = memory.placements(job.id)
    assert (placement.allocation, placement.start, placement.end) == (allocation, 1000.0, 1010.0)
    assert memory.jobs() == {}


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_run_that_completes_over_several_readings_is_recorded_once(restarts: int) -> None:
    """``restarts`` is 1 after a requeue, which Slurm counts at once."""
    port, memory = cluster(comment(4)), store()
    run_round(port, memory, hops, SETTINGS, None)
    job = port.jobs[JobId("1")]
    allocation = job.allocation
    observe(port, memory, 8)
    ending_job = replace(
        job, state=SlurmState.COMPLETING, allocation=Allocation(), ran_on=allocation.nodes
    )
    for _ in range(3):
        port.now += 1.0
        port.jobs[job.id] = replace(ending_job, restarts=restarts, start=port.now)
        observe(port, memory, 8)
    (placement,) = memory.placements(job.id)
    assert (placement.allocation, placement.end) == (allocation, 1001.0)


def test_the_placement_of_a_run_ended_before_the_reading_after_its_start_is_recorded() -> None:
    port, memory = cluster(comment(4)), store()
    run_round(port, memory, hops, SETTINGS, None)
    job = port.jobs[JobId("1")]
    ended_job = replace(job, state=SlurmState.CANCELLED, end=1003.0, ran_on=job.allocation.nodes)
    port.jobs[JobId("1")] = replace(ended_job, allocation=Allocation())
    port.now += 10.0
    observe(port, memory, 8)
    (placement,) = memory.placements()
    assert (placement.allocation, placement.end) == (job.allocation, 1003.0)


def test_the_placement_of_a_moved_run_that_ended_unread_is_recorded() -> None:
    port, memory = cluster(comment(4)), store()
    run_round(port, memory, hops, SETTINGS, None)
    observe(port, memory, 8)
    job = port.jobs[JobId("1")]
    old, new = job.allocation, Allocation.of({NodeName("n2"): 4})
    assert old != new
    step = Step(job.id, StepKind.MOVE, current=old, target=new)
    port.now += 10.0
    plan = memory.begin_plan(
        PlanRecord(1000.0, 1060.0, first=True, made=port.now, plan=Plan({}), steps=(step,))
    )
    outcome = StepOutcome(step, OutcomeStatus.GONE, vacated=1012.0)
    memory.finish_plan(plan, [outcome], finished=1014.0)
    ended_job = replace(job, state=SlurmState.COMPLETED, start=1013.0, end=1014.0, ran_on=new.nodes)
    port.jobs[job.id] = replace(ended_job, restarts=1, allocation=Allocation())
    port.now += 5.0
    observe(port, memory, 8)
    first, second = memory.placements()
    assert (first.allocation, first.end) == (old, 1012.0)
    assert (second.allocation, second.start, second.end) == (new, 1013.0, 1014.0)


@pytest.mark.parametrize("restarts", [0, 2])
def test_the_placement_of_a_run_requeued_unseen_is_recorded(restarts: int) -> None:
    port, memory = cluster(comment(4)), store()
    port.jobs[JobId("1")] = replace(port.jobs[JobId("1")], restarts=restarts)
    start_and_be_killed(port, memory)
    job = port.jobs[JobId("1")]
    requeued_job = replace(job, state=SlurmState.PENDING, restarts=restarts + 1, submit=1007.0)
    port.jobs[JobId("1")] = replace(requeued_job, allocation=Allocation(), hold=Hold.HOPS)
    port.now += 10.0
    recover(port, memory, 8)
    first, second = memory.placements()
    assert (first.allocation, first.start, first.end) == (job.allocation, 1000.0, 1007.0)
    assert (second.start, second.end) == (1010.0, None)


@pytest.mark.parametrize("read_back", [True, False])
def test_the_placement_of_a_run_requeued_before_the_next_reading_is_recorded(
    read_back: bool,
) -> None:
    """It was requeued by its owner or because its node failed, within a second; GPU time counts."""
    port, memory = cluster(comment(4)), store()
    apply = port.apply

    def requeue_after_apply(steps: Sequence[Step]) -> Sequence[StepOutcome]:
        [outcome] = apply(steps)
        job = port.jobs[outcome.step.job]
        port.jobs[job.id] = replace(
            job, state=SlurmState.PENDING, restarts=1, submit=1001.0, allocation=Allocation()
        )
        port.now += 3.0
        if read_back:
            return [outcome]
        return [
            replace(outcome, status=OutcomeStatus.FAILED, actual=Allocation(), ran=job.allocation)
        ]

    port.apply = requeue_after_apply  # type: ignore[method-assign]
    run_round(port, memory, hops, SETTINGS, None)
    for _ in range(2):  # a second reading finds no second run
        observe(port, memory, 8)
    (placement,) = memory.placements()
    assert (placement.allocation.gpus, placement.start, placement.end) == (4, 1000.0, 1001.0)
    record = memory.jobs()[JobId("1")]
    assert (record.run_seconds, record.attained_gpu_seconds) == (1.0, 4.0)


def test_the_placement_of_a_run_on_other_nodes_than_planned_is_recorded() -> None:
    port, memory = cluster(comment(4)), store()
    actual_allocation = Allocation.of({NodeName("n1"): 2, NodeName("n2"): 2})

    def place_elsewhere(steps: Sequence[Step]) -> Sequence[StepOutcome]:
        [step] = steps
        job = replace(port.jobs[step.job], restarts=1, submit=1002.0)
        port.jobs[step.job] = job
        port.now += 3.0
        return [StepOutcome(step, OutcomeStatus.FAILED, started=1000.0, ran=actual_allocation)]

    port.apply = place_elsewhere  # type: ignore[method-assign]
    run_round(port, memory, hops, SETTINGS, None)
    observe(port, memory, 8)
    (placement,) = memory.placements()
    assert (placement.allocation, placement.end) == (actual_allocation, 1002.0)


def test_a_job_that_never_ran_has_no_placement() -> None:
    port, memory = cluster(comment(4)), store()
    run_round(port, memory, hops, SETTINGS, None)
    job = replace(port.jobs[JobId("1")], state=SlurmState.CANCELLED, start=1003.0, end=1003.0)
    port.jobs[JobId("1")] = replace(job, allocation=Allocation())
    port.now += 10.0
    observe(port, memory, 8)
    assert memory.placements() == ()


def test_jobs_of_unmeasured_restart_time_stay_in_place() -> None:
    port = cluster(*[comment(2) for _ in range(4)])
    for number, node in zip(range(1, 5), ("n2", "n1", "n2", "n0"), strict=True):
        job = JobId(str(number))
        place = Allocation.of({node: 2})
        port.jobs[job] = replace(
            port.jobs[job], state=SlurmState.RUNNING, hold=Hold.NONE, allocation=place, start=900.0
        )
    snapshot_settings = replace(SETTINGS.snapshot, assumed_restart_seconds=30.0)
    result = run_round(port, store(), hops, replace(SETTINGS, snapshot=snapshot_settings), None)
    assert result.first
    assert result.outcomes == ()


@pytest.mark.parametrize(
    ("has_saved", "traps", "rule", "stays"),
    [
        (None, "none", SETTINGS.snapshot.unsaved, True),  # by default
        (False, "none", Unsaved.STAYS_IF_SEEN, True),
        (True, "none", Unsaved.STAYS_IF_SEEN, False),
        (None, "none", Unsaved.STAYS_IF_SEEN, False),  # hops does not see whether it saves
        (None, "none", Unsaved.STAYS, True),
        (False, "none", Unsaved.MOVES, False),
        (False, "USR1", Unsaved.STAYS_IF_SEEN, False),  # it saves when warned
        (False, "TERM,INT", Unsaved.STAYS, True),  # it clears up, and hops sends USR1
        (False, "", Unsaved.STAYS_IF_SEEN, False),  # a job from before hops read scripts
    ],
)
def test_a_job_that_would_lose_all_its_work_stays(
    has_saved: bool | None, traps: str, rule: Unsaved, stays: bool
) -> None:
    port, memory = cluster(comment(1)), store()
    options = read_script_options(f"hops:asks|shape:any|traps:{traps}" if traps else "")
    port.jobs[JobId("1")] = replace(port.jobs[JobId("1")], options=options)
    rules = replace(SETTINGS, snapshot=replace(SETTINGS.snapshot, unsaved=rule))
    run_round(port, memory, hops, rules, None)
    memory.save_jobs([replace(record, saved=has_saved) for record in memory.jobs().values()])
    build = run_round(port, memory, hops, rules, None).build
    assert (JobId("1") in build.pinned_jobs) == stays
    assert ("seen to save" in build.notes.get(JobId("1"), "")) == stays


STEPS = "signal:steps:INT:90|traps:none"
BATCH = "signal:batch:USR1:90|traps:USR1"


@pytest.mark.parametrize(
    ("word", "restarts", "has_saved", "answers", "stays"),
    [
        (STEPS, 0, None, None, True),  # hops does not see its training
        (STEPS, 0, False, False, True),  # it would die of the signal, and lose its work
        (STEPS, 0, False, True, False),
        (STEPS, 0, True, False, False),
        (STEPS, 1, False, True, True),  # no save followed
        (STEPS, 1, True, None, False),
        (STEPS + "|repeats:requeues", 2, None, None, False),
        (STEPS + "|preempt:yes", 2, None, None, False),  # its user says that it tolerates a move
        ("traps:none|preempt:yes", 0, None, None, False),
        (BATCH, 2, None, None, False),  # its shell's text is known
        (BATCH, 0, False, None, False),
        (BATCH, 1, False, None, True),  # no save followed
        (BATCH + "|repeats:requeues", 2, False, None, False),
    ],
)
def test_a_job_whose_signal_would_save_nothing_stays(
    word: str, restarts: int, has_saved: bool | None, answers: bool | None, stays: bool
) -> None:
    """Regression: it died of INT in each round, and started over."""
    port, memory = cluster(comment(1)), store()
    (job,) = port.jobs
    options = read_script_options(f"hops:asks|shape:any|{word}")
    port.jobs[job] = replace(port.jobs[job], options=options, restarts=restarts)
    run_round(port, memory, hops, SETTINGS, None)
    memory.save_jobs(
        [
            replace(record, saved=has_saved, answers_signal=answers)
            for record in memory.jobs().values()
        ]
    )
    port.jobs[job] = replace(port.jobs[job], restarts=restarts)
    build = run_round(port, memory, hops, SETTINGS, None).build
    assert (job in build.pinned_jobs) == stays


@pytest.mark.parametrize(
    ("repeats", "words"),
    [
        ("submits,resubmits", "submits a job when it is stopped"),
        ("refuses", "fails if a file or folder of an earlier start exists"),
    ],
)
def test_a_job_that_would_be_harmed_by_any_second_start_stays(repeats: str, words: str) -> None:
    port, memory = cluster(comment(1)), store()
    (job,) = port.jobs
    options = read_script_options(f"hops:asks|shape:any|traps:TERM|repeats:{repeats}")
    port.jobs[job] = replace(port.jobs[job], options=options)
    run_round(port, memory, hops, SETTINGS, None)
    memory.save_jobs([replace(record, saved=True) for record in memory.jobs().values()])
    build = run_round(port, memory, hops, SETTINGS, None).build
    assert job in build.pinned_jobs
    assert words in build.notes[job]


def test_a_job_with_a_deadline_stays() -> None:
    """Regression: Slurm ended it (DEADLINE) when it waited again with its whole time limit."""
    port, memory = cluster(comment(1)), store()
    (job,) = port.jobs
    port.jobs[job] = replace(port.jobs[job], deadline=port.now + 1e5)
    run_round(port, memory, hops, SETTINGS, None)
    memory.save_jobs([replace(record, saved=True) for record in memory.jobs().values()])
    build = run_round(port, memory, hops, SETTINGS, None).build
    assert job in build.pinned_jobs
    assert "--deadline" in build.notes[job]


@pytest.mark.parametrize(("has_saved", "is_warned"), [(False, True), (True, False), (None, False)])
def test_a_user_whose_job_was_not_seen_to_save_is_told_about_moves(
    has_saved: bool | None, is_warned: bool
) -> None:
    port, memory = cluster(comment(1)), store()
    (job,) = port.jobs
    port.jobs[job] = replace(
        port.jobs[job], options=read_script_options("hops:asks|shape:any|traps:USR1")
    )
    run_round(port, memory, hops, SETTINGS, None)
    memory.save_jobs([replace(record, saved=has_saved) for record in memory.jobs().values()])
    notes = run_round(port, memory, hops, SETTINGS, None).build.notes
    assert ("preempt=no in the comment keeps it" in notes.get(job, "")) == is_warned


def test_a_workload_that_failed_at_a_restart_is_no_longer_moved() -> None:
    port, memory = cluster(comment(1), comment(1)), store()
    run_round(port, memory, hops, SETTINGS, None)
    first, second = port.jobs
    port.jobs[first] = replace(port.jobs[first], state=SlurmState.FAILED, end=port.now)
    memory.save_jobs(
        [
            replace(record, saved=True, failed_again=record.id == first)
            for record in memory.jobs().values()
        ]
    )
    run_round(port, memory, hops, SETTINGS, None)
    build = run_round(port, memory, hops, SETTINGS, None).build
    assert second in build.pinned_jobs
    assert "failed within a minute of a restart" in build.notes[second]


@pytest.mark.parametrize(
    ("traps", "stays"), [("USR1", True), ("USR1|ends:USR1", False), ("none", False)]
)
def test_a_workload_ended_by_hops_signal_is_no_longer_moved(traps: str, stays: bool) -> None:
    port, memory = cluster(comment(1), comment(1)), store()
    options = read_script_options(f"hops:asks|shape:any|traps:{traps}")
    port.jobs = {job: replace(read, options=options) for job, read in port.jobs.items()}
    run_round(port, memory, hops, SETTINGS, None)
    first, second = port.jobs
    port.jobs[first] = replace(port.jobs[first], state=SlurmState.COMPLETED, end=port.now)
    memory.save_ended_by_signal([first])
    memory.save_jobs([replace(record, saved=True) for record in memory.jobs().values()])
    run_round(port, memory, hops, SETTINGS, None)
    build = run_round(port, memory, hops, SETTINGS, None).build
    assert (second in build.pinned_jobs) == stays
    assert ("scontrol requeue" in build.notes.get(second, "")) == stays


@pytest.mark.parametrize("is_timed", [None, True, False])
def test_explain_says_if_communication_is_not_separated(is_timed: bool | None) -> None:
    """With FSDP, DeepSpeed and pipelines, for example."""
    port, memory = cluster(comment(1)), store()
    run_round(port, memory, hops, SETTINGS, None)
    memory.save_jobs(
        [replace(record, communication_timed=is_timed) for record in memory.jobs().values()]
    )
    notes = run_round(port, memory, hops, SETTINGS, None).build.notes
    is_noted = "how long its ranks communicate is not known" in notes.get(JobId("1"), "")
    assert is_noted == (is_timed is False)


@pytest.mark.parametrize(("reqs", "keeps", "is_warned"), [
    ((1, 2), False, True), ((1, 2), True, False), ((1, 2), None, False), ((2,), False, False),
])  # fmt: skip
def test_explain_says_what_another_gpu_count_changes(
    reqs: tuple[int, ...], keeps: bool | None, is_warned: bool
) -> None:
    port, memory = cluster(comment(*reqs)), store()
    run_round(port, memory, hops, SETTINGS, None)
    memory.save_jobs([replace(record, keeps_steps=keeps) for record in memory.jobs().values()])
    notes = run_round(port, memory, hops, SETTINGS, None).build.notes
    assert ("the epoch begins again" in notes.get(JobId("1"), "")) == is_warned


def test_explain_says_that_samples_are_unknown() -> None:
    port, memory = cluster(comment(1)), store()
    run_round(port, memory, hops, SETTINGS, None)
    memory.save_jobs([replace(record, saved=False) for record in memory.jobs().values()])
    notes = run_round(port, memory, hops, SETTINGS, None).build.notes
    assert "do not show how many samples" in notes[JobId("1")]


def test_explain_says_that_the_iteration_time_is_unknown() -> None:
    port, memory = cluster(comment(1)), store()
    run_round(port, memory, hops, SETTINGS, None)
    memory.save_jobs([replace(record, time_known=False) for record in memory.jobs().values()])
    notes = run_round(port, memory, hops, SETTINGS, None).build.notes
    assert "its speed is unknown" in notes[JobId("1")]


def test_a_reserved_node_does_not_separate_its_neighbours() -> None:
    """A job on several nodes needs neighbours, as the nodes on both sides of a reservation are."""
    nodes = [replace(NODES[0], name=NodeName(f"n{number}")) for number in range(3)]
    nodes[1] = replace(nodes[1], reservation="day", reserved_from=0.0)
    port = replace(cluster(comment(8)), nodes=tuple(nodes))
    options = read_script_options("hops:asks|shape:even|per_node:4")
    port.jobs[JobId("1")] = replace(port.jobs[JobId("1")], options=options)
    run_round(port, MemoryStore(), hops, SETTINGS, None)
    assert port.placements()[JobId("1")] == Allocation.of({"n0": 4, "n2": 4})


class Read(tuple[StepOutcome, ...]):
    """Outcomes that count how often one of them is read."""

    looks = 0

    def __iter__(self) -> Iterator[StepOutcome]:
        for index in range(len(self)):
            Read.looks += 1
            yield self[index]

    def __reversed__(self) -> Iterator[StepOutcome]:
        return iter(self[::-1])

    def __getitem__(self, index: Any) -> Any:
        item = super().__getitem__(index)
        return Read(item) if isinstance(index, slice) else item


def test_a_status_document_reads_each_outcome_a_few_times_at_most() -> None:
    jobs = 100
    port, memory = cluster(*[comment(4) for _ in range(jobs)]), store()
    result = run_round(port, memory, hops, SETTINGS, None)
    step = Step(JobId("7"), StepKind.START)
    outcomes = [
        StepOutcome(replace(step, job=JobId(str(i))), OutcomeStatus.DONE) for i in range(jobs)
    ]
    outcomes += [StepOutcome(step, OutcomeStatus.FAILED, error=text) for text in ("first", "later")]
    Read.looks = 0
    status = document(SERVICE, result.observation, replace(result, outcomes=Read(outcomes)))
    reasons = {row["id"]: row["reason"] for row in status["waiting"] + status["running"]}
    assert reasons["7"] == "first"
    assert "first" not in {reason for job, reason in reasons.items() if job != "7"}
    assert Read.looks <= 4 * len(outcomes)

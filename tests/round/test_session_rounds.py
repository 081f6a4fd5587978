"""Sessions in rounds: they come first, and trainings that save make room for them at once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from memory_cluster import Cluster, cluster, comment, store, submission
from memory_store import MemoryStore

from hopsd.core.interactive.settings import SessionSettings
from hopsd.core.snapshot.pinning import Unsaved
from hopsd.core.snapshot.settings import SnapshotSettings
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId, UserName
from hopsd.model.plan import PlanSettings
from hopsd.model.reading import SlurmState
from hopsd.model.reason import ReasonCode
from hopsd.model.step import StepKind
from hopsd.policies.hops.policy import plan as hops
from hopsd.policies.registry import get
from hopsd.round.intervention import intervention
from hopsd.round.result import RoundResult
from hopsd.round.run import run_round
from hopsd.round.settings import RoundSettings
from hopsd.round.window import RoundWindow

SETTINGS = RoundSettings(
    seconds=600.0,
    plan=PlanSettings(time_limit_seconds=5.0),
    snapshot=SnapshotSettings(unsaved=Unsaved.MOVES),
)
SESSION = JobId("9")


def run_session_round(
    port: Cluster,
    memory: MemoryStore,
    window: RoundWindow | None,
    sessions: SessionSettings | None = None,
    policy: object = hops,
) -> RoundResult:
    settings = replace(SETTINGS, sessions=sessions or SessionSettings())
    return run_round(port, memory, policy, settings, window)  # type: ignore[arg-type]


def ask(port: Cluster, job: str = "9", gpus: int = 1, user: str = "eve") -> None:
    text = f"hops:reqs={gpus};interactive"
    session = submission(int(job), text, submit=port.now)
    port.jobs[JobId(job)] = replace(session, user=UserName(user))


def note_saves(memory: MemoryStore, *jobs: str) -> None:
    """Record that the jobs were seen to save, and to continue training after a restart."""
    records = memory.jobs()
    memory.save_jobs(replace(records[JobId(job)], saved=True, restart_seconds=20.0) for job in jobs)


def full_cluster(*comments: str) -> tuple[Cluster, MemoryStore, RoundWindow]:
    """A full cluster, some time into a round."""
    port, memory = cluster(*comments), store()
    window = run_session_round(port, memory, None).window
    assert sum(allocation.gpus for allocation in port.placements().values()) == 12
    port.now += 100.0
    return port, memory, window


def test_a_session_gets_an_idle_gpu_without_moving_a_job() -> None:
    port, memory = cluster(comment(4), comment(2)), store()
    window = run_session_round(port, memory, None).window
    before = port.placements()
    ask(port)
    port.now += 20.0
    result = run_session_round(port, memory, window)
    assert [step.step.job for step in result.outcomes] == [SESSION]
    allocation = port.placements()[SESSION]
    assert allocation.nodes == before[JobId("2")].nodes, "whole nodes are for large jobs"


def test_a_training_that_saves_shrinks_for_a_session_within_a_round() -> None:
    port, memory, window = full_cluster(comment(4), comment(2, 4), comment(4))
    note_saves(memory, "1", "2", "3")
    ask(port)
    result = run_session_round(port, memory, window)
    assert not result.first
    kinds = {outcome.step.job: outcome.step.kind for outcome in result.outcomes}
    assert kinds == {JobId("2"): StepKind.MOVE, SESSION: StepKind.START}
    (move,) = [outcome for outcome in result.outcomes if outcome.step.kind is StepKind.MOVE]
    event = intervention(move)
    assert event is not None
    assert event[1].endswith("to make room for session 9")
    after = port.placements()
    assert after[JobId("2")].gpus == 2
    assert after[SESSION].nodes == after[JobId("2")].nodes


def test_a_training_that_cannot_shrink_stops_for_it_and_returns_later() -> None:
    port, memory, window = full_cluster(comment(4), comment(4), comment(4))
    note_saves(memory, "1", "2", "3")
    before = port.placements()
    ask(port)
    result = run_session_round(port, memory, window)
    kinds = sorted(outcome.step.kind for outcome in result.outcomes)
    assert kinds == [StepKind.PREEMPT, StepKind.START]
    (stopped_job,) = before.keys() - port.placements().keys()
    assert port.placements()[SESSION].nodes == before[stopped_job].nodes
    port.now += 10.0
    ended_session = replace(port.jobs[SESSION], state=SlurmState.COMPLETED, end=port.now)
    port.jobs[SESSION] = replace(ended_session, allocation=Allocation())
    run_session_round(port, memory, window)
    assert port.placements()[stopped_job].gpus == 4


def test_jobs_that_may_not_move_keep_their_gpus() -> None:
    port, memory, window = full_cluster(*[comment(4, extra=";preempt=no")] * 3)
    note_saves(memory, "1", "2", "3")
    ask(port)
    result = run_session_round(port, memory, window)
    assert result.outcomes == ()
    reason = result.plan.waiting[SESSION]
    assert reason.code is ReasonCode.LOST_TO_OTHERS
    assert "it starts as soon as one ends" in reason.text


def test_a_training_never_seen_to_save_is_the_last_to_make_room() -> None:
    port, memory = cluster(comment(1, 4), comment(4), comment(4)), store()
    for job in ("1", "2"):  # jobs of other users, who may save or not
        port.jobs[JobId(job)] = replace(port.jobs[JobId(job)], user=UserName(f"user{job}"))
    window = run_session_round(port, memory, None).window
    before = port.placements()
    note_saves(memory, "3")
    port.now += 100.0
    ask(port)
    run_session_round(port, memory, window)
    assert port.placements()[SESSION].nodes == before[JobId("3")].nodes


@pytest.mark.parametrize("policy", ["hops", "hops+", "allox", "themis", "fifo"])
def test_a_session_is_not_moved_at_a_rounds_start(policy: str) -> None:
    port, memory, window = full_cluster(comment(4), comment(2, 4), comment(4))
    note_saves(memory, "1", "2", "3")
    ask(port)
    run_session_round(port, memory, window)
    allocation = port.placements()[SESSION]
    for number in range(3):
        port.now += 700.0
        port.jobs[JobId(f"2{number}")] = submission(20 + number, comment(4), submit=port.now)
        run_session_round(port, memory, None, policy=get(policy))
        assert port.placements()[SESSION] == allocation
        assert port.jobs[SESSION].restarts == 0


@pytest.mark.parametrize("policy", ["hops", "hops+"])
def test_a_first_plan_makes_room_for_a_session(policy: str) -> None:
    port, memory, _ = full_cluster(comment(4), comment(2, 4), comment(4))
    note_saves(memory, "1", "2", "3")
    ask(port)
    port.now += 700.0
    result = run_session_round(port, memory, None, policy=get(policy))
    assert result.first
    assert port.placements()[SESSION].gpus == 1


def test_sessions_are_limited_per_user_and_in_total() -> None:
    port, memory = cluster(comment(4)), store()
    window = run_session_round(port, memory, None).window
    limits = SessionSettings(user_gpus=2, share=0.25)
    for job in ("11", "12", "13"):
        ask(port, job)
    ask(port, "14", gpus=3)
    ask(port, "15", user="bob")
    ask(port, "16", user="cid")
    port.now += 20.0
    result = run_session_round(port, memory, window, limits)
    assert {job for job in port.placements() if job != "1"} == {"11", "12", "15"}
    waiting = {job: reason.text for job, reason in result.plan.waiting.items()}
    assert "your sessions have 2 of the 2 GPUs" in waiting[JobId("13")]
    assert "ask for fewer" in waiting[JobId("14")]
    assert "all sessions have 3 of the 3 GPUs" in waiting[JobId("16")]


def test_a_session_larger_than_the_limit_is_told_so() -> None:
    """Regression: it was told that it starts as soon as another session ends."""
    port, memory = cluster(comment(4)), store()
    window = run_session_round(port, memory, None).window
    ask(port, "11", gpus=4)
    port.now += 20.0
    result = run_session_round(port, memory, window, SessionSettings(user_gpus=4, share=0.25))
    reason = result.plan.waiting[JobId("11")]
    assert "asks for 4 GPUs, and all sessions may have 3 ([interactive] share)" in reason.text


def test_the_reserve_is_withheld_from_jobs_that_do_not_save() -> None:
    rigid = comment(2, extra=";preempt=no")
    port, memory = cluster(*[rigid] * 6), store()
    session_settings = SessionSettings(reserve=2)
    result = run_session_round(port, memory, None, session_settings)
    assert sum(allocation.gpus for allocation in port.placements().values()) == 10
    assert [reason.code for reason in result.plan.waiting.values()] == [ReasonCode.LIMIT]
    ask(port, gpus=2)
    port.now += 20.0
    run_session_round(port, memory, result.window, session_settings)
    assert port.placements()[SESSION].gpus == 2


def test_jobs_that_save_may_use_the_reserve() -> None:
    port, memory = cluster(*[comment(4)] * 3), store()
    session_settings = SessionSettings(reserve=2)
    run_session_round(port, memory, None, session_settings)
    assert len(port.placements()) == 2
    note_saves(memory, "1", "2")  # of the same workload as the third one
    port.now += 20.0
    run_session_round(port, memory, None, session_settings)
    assert len(port.placements()) == 3

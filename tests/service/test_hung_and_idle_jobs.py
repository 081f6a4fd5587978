"""Each hang and each idle job becomes one event, and the status shows it while it lasts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from memory_store import MemoryStore

from hopsd.core.report.pause import KEPT_LINE, KEPT_PATH
from hopsd.core.report.rank import Pause, Rank, RankState
from hopsd.core.submission.comment import parse
from hopsd.errors import SlurmUnavailableError
from hopsd.health.remedy import Remedy
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId, NodeName, UserName
from hopsd.model.privacy import Viewer
from hopsd.model.reading import JobReading, Reading, SlurmState
from hopsd.model.script_options import ScriptOptions
from hopsd.model.step import StepKind
from hopsd.round.observation import Observation
from hopsd.serve.privacy import status_for
from hopsd.service.hung_jobs import MAX_RANKS, HungJobs
from hopsd.service.idle_jobs import IdleJobs
from hopsd.service.remedies import ANNOUNCEMENT_EVENT, REQUEUE_EVENT, SHRUNK, Remedies, requeueable

NOW = 10_000.0
JOB = JobReading(
    id=JobId("17"),
    user=UserName("ann"),
    uid=1000,
    name="train",
    comment="hops:reqs=2",
    partition="main",
    state=SlurmState.RUNNING,
    submit=900.0,
    allocation=Allocation.of({"n0": 8}),
)
PAUSE = Pause(RankState.STOPPED, True, 40.0, 30.0, 20.0, "secret.py:7 in f", "", "/home/ann/s.txt")
RANK = Rank(JOB.id, NodeName("n0"), 0, 1, 5, "", False, PAUSE, heard_at=NOW, written_at=NOW)


def kinds(store: MemoryStore) -> list[str]:
    return [event.kind for event in reversed(store.events())]


def test_a_hang_and_its_end_are_reported_once() -> None:
    store = MemoryStore()
    hangs = HungJobs(store)  # type: ignore[arg-type]
    hangs.look([RANK], [JOB], NOW)
    hangs.look([replace(RANK, heard_at=NOW + 30, written_at=NOW + 30)], [JOB], NOW + 30)
    assert kinds(store) == ["hung"]
    assert hangs.rows()[JOB.id]["since"] == NOW - 30.0
    hangs.look([], [JOB], NOW + 60)
    assert kinds(store) == ["hung", "hung_over"]
    hangs.look([RANK], [JOB], NOW)  # a false alarm, and this pause is no longer
    longer = replace(RANK, pause=replace(PAUSE, still_seconds=200.0))
    hangs.look([longer], [JOB], NOW)
    hangs.look([], [], NOW + 60)  # the job has ended
    assert kinds(store) == ["hung", "hung_over", "hung"]
    assert hangs.rows() == {}


def test_a_hang_of_many_ranks_takes_little_space() -> None:
    """A user's reports of 4,096 ranks made an event of 4 MB and a status document of 50 MB."""
    store = MemoryStore()
    hangs = HungJobs(store)  # type: ignore[arg-type]
    text = "x" * KEPT_PATH
    waits = Pause(RankState.WAITING, True, 40.0, 30.0, 20.0, text[:KEPT_LINE], "", text)
    ranks = [
        replace(RANK, rank=rank, world=4096, pause=replace(waits, waits_in=f"call{rank}"))
        for rank in range(4096)
    ]
    hangs.look(ranks, [JOB], NOW)
    assert len(store.events()[0].text) < 500
    assert len(str(hangs.rows())) < 200_000
    stopped_rank = replace(ranks[-1], pause=PAUSE)
    hangs.look([*ranks[:-1], stopped_rank], [JOB], NOW)
    reported_ranks = [row["rank"] for row in hangs.rows()[JOB.id]["ranks"]]
    assert reported_ranks == [*range(MAX_RANKS - 1), 4095]


def test_a_users_code_is_shown_to_the_user_only() -> None:
    store = MemoryStore()
    hangs = HungJobs(store)  # type: ignore[arg-type]
    hangs.look([RANK], [JOB], NOW)
    row = {"id": "17", "uid": 1000, "hung": hangs.rows()[JOB.id]}
    document: dict[str, Any] = {"running": [row]}

    def text_for(uid: int) -> str:
        return str(status_for(Viewer(uid, "", frozenset()), document))

    assert "secret.py" in text_for(1000)
    assert "secret.py" in text_for(0)
    assert "secret.py" not in text_for(1001)
    assert "/home/ann" not in text_for(1001)


class Sstat:
    """Answers with the processor time of job 17; ``is_away``: no node answers."""

    def __init__(self) -> None:
        self.seconds, self.is_away = 5, False

    def run(self, *arguments: str) -> str:
        if self.is_away:
            raise SlurmUnavailableError("sstat: no answer")
        assert "--jobs=17" in arguments
        return f"17.extern|1|00:00:00\n17.batch|1|00:00:01\n17.0|2|1-00:00:{self.seconds:02}\n"


def watch(idle: IdleJobs, minutes: int, *, steps: int = 0, since: float = NOW) -> float:
    time = since
    for _ in range(2 * minutes + 1):
        idle.look([JOB], {JOB.id: steps}, time)
        time += 30.0
    return time


@pytest.fixture
def sstat() -> Sstat:
    return Sstat()


def test_a_sleeping_job_is_reported_once_within_five_minutes(sstat: Sstat) -> None:
    store = MemoryStore()
    idle = IdleJobs(store, sstat, begin=lambda work: work())  # type: ignore[arg-type]
    time = watch(idle, 5)
    assert kinds(store) == ["idle"]
    assert "no step and 0 s of processor time" in idle.rows()[JOB.id]["text"]
    assert idle.rows()[JOB.id]["gpus"] == 8
    sstat.is_away = True
    time = watch(idle, 10, since=time)
    assert idle.rows() == {}
    sstat.is_away, sstat.seconds = False, 50
    watch(idle, 2, since=time)
    assert idle.rows() == {}


def test_a_job_whose_processor_time_is_not_gathered_is_not_idle(sstat: Sstat) -> None:
    """With jobacct_gather/none, sstat (22.05 to 26.05) counts no tasks, and prints centuries."""
    store = MemoryStore()
    row = "17.batch|0|213503982334-14:25:51\n"
    sstat.run = lambda *_: row  # type: ignore[method-assign]
    idle = IdleJobs(store, sstat, begin=lambda work: work())  # type: ignore[arg-type]
    watch(idle, 10)
    assert idle.seconds() == {}
    row = "17.batch|0|213503982334-14:25:51\n17.0|2|00:00:05\n"
    watch(idle, 10, since=NOW + 1200.0)
    assert set(idle.seconds()) == {"17"}


def test_slurm_is_not_asked_what_it_would_refuse(sstat: Sstat) -> None:
    sstat.run = lambda *_: pytest.fail("asked")  # type: ignore[method-assign]
    idle = IdleJobs(
        MemoryStore(),
        sstat,  # type: ignore[arg-type]
        begin=lambda work: work(),
        refusal=lambda: "only SlurmUser",
    )
    watch(idle, 10)
    assert idle.seconds() == {}


def test_a_training_job_is_not_polled(sstat: Sstat) -> None:
    sstat.run = lambda *_: pytest.fail("asked")  # type: ignore[method-assign]
    idle = IdleJobs(MemoryStore(), sstat, begin=lambda work: work())  # type: ignore[arg-type]
    time = NOW
    for look in range(1, 20):
        idle.look([JOB], {JOB.id: look}, time)
        time += 60.0
    assert idle.rows() == {}


def test_a_job_that_uses_two_of_eight_gpus_is_reported_once() -> None:
    store = MemoryStore()
    idle = IdleJobs(store, Sstat())  # type: ignore[arg-type]
    for gpus_in_use in (8, 2, 2, 8):
        idle.note_used([JOB], {JOB.id: gpus_in_use}, {}, NOW)
        assert [row["gpus"] for row in idle.rows().values()] == [6] * (gpus_in_use == 2)
    idle.note_used([JOB], {}, {}, NOW)
    (event,) = store.events()
    assert (event.kind, "2 of the 8 GPUs" in event.text) == ("gpus_unused", True)


def test_flapping_reports_do_not_make_an_event_each_time() -> None:
    store = MemoryStore()
    idle = IdleJobs(store, Sstat())  # type: ignore[arg-type]
    for tick in range(240):
        idle.note_used([JOB], {JOB.id: 2 if tick % 2 else 8}, {}, NOW + 30.0 * tick)
    assert len(store.events()) == 2
    idle.note_used([replace(JOB, restarts=1)], {JOB.id: 8}, {}, NOW + 7200.0)
    idle.note_used([replace(JOB, restarts=1)], {JOB.id: 2}, {}, NOW + 7230.0)
    assert len(store.events()) == 3


def test_the_driver_must_see_no_process_on_the_other_gpus_throughout() -> None:
    idle = IdleJobs(MemoryStore(), Sstat())  # type: ignore[arg-type]

    def idle_agreement(minute: int, taken_gpus: int | None, gpus_in_use: int = 2) -> float:
        taken_by_job = {} if taken_gpus is None else {JOB.id: taken_gpus}
        idle.note_used([JOB], {JOB.id: gpus_in_use}, taken_by_job, NOW + 60.0 * minute)
        return idle.partly[JOB.id].agreed_seconds

    assert (
        idle_agreement(0, None)
        == idle_agreement(5, 3)
        == idle_agreement(7, 1)
        == idle_agreement(10, 2)
        == 0.0
    )
    assert idle_agreement(12, 2) == 120.0
    assert "no process on the others for 2 min" in idle.partly[JOB.id].text
    assert idle_agreement(13, 5) == idle_agreement(14, 2) == 0.0, "an evaluation used them"
    assert idle_agreement(15, 1, gpus_in_use=1) == 0.0


DUE = Remedy(JOB.id, 0.0, "does nothing")


def test_a_job_that_should_shrink_is_stopped_at_most_three_times() -> None:
    store = MemoryStore()
    service = Remedies(store)  # type: ignore[arg-type]
    for _ in range(5):
        steps = service.steps([JOB], [DUE])
    assert steps == []
    assert kinds(store) == [REQUEUE_EVENT] * 3


def test_a_job_is_shrunk_at_its_requeue_and_this_is_reported() -> None:
    store = MemoryStore()
    service = Remedies(store)  # type: ignore[arg-type]
    for due_in in (590.0, 0.0):
        steps = service.steps([JOB], [replace(DUE, due_in=due_in, gpus=2)])
    assert [step.kind for step in steps] == [StepKind.PREEMPT]
    assert kinds(store) == [ANNOUNCEMENT_EVENT, SHRUNK]
    assert "requeues it for at most 2 GPUs: does nothing" in store.events()[0].text
    for _ in range(5):
        service.steps([JOB], [replace(DUE, gpus=2)])
    assert kinds(store) == [ANNOUNCEMENT_EVENT] + [SHRUNK] * 3


def test_the_user_is_told_once_before_a_job_shrinks() -> None:
    store = MemoryStore()
    service = Remedies(store)  # type: ignore[arg-type]
    for due_in in (590.0, 530.0, 0.0):
        steps = service.steps([JOB], [replace(DUE, due_in=due_in)])
    (step,) = steps
    assert (step.kind, step.current) == (StepKind.PREEMPT, JOB.allocation)
    assert kinds(store) == [ANNOUNCEMENT_EVENT, REQUEUE_EVENT]
    assert "in 10 min unless it makes progress: does nothing" in store.events()[1].text


def test_jobs_that_hops_may_not_stop_are_left_alone() -> None:
    protected_jobs = [
        replace(JOB, id=JobId("18"), comment="hops:reqs=2;preempt=no"),
        replace(JOB, id=JobId("19"), requeue=False),
        replace(JOB, id=JobId("20"), comment=""),
        replace(JOB, id=JobId("23"), options=ScriptOptions(repeats=frozenset({"refuses"}))),
        replace(JOB, id=JobId("22"), comment="hops:reqs=1;interactive"),
        replace(JOB, id=JobId("21"), state=SlurmState.PENDING),
    ]
    observation = observe_jobs([JOB, *protected_jobs])
    assert [job.id for job in requeueable(observation)] == [JOB.id]


def observe_jobs(jobs: list[JobReading]) -> Observation:
    comments = {job.id: parse(job.comment) for job in jobs if job.comment}
    return Observation(Reading(NOW, (), tuple(jobs), "22.05.8"), comments, {}, {}, frozenset())


def test_a_hung_job_is_not_reported_as_idle(sstat: Sstat) -> None:
    store = MemoryStore()
    idle = IdleJobs(store, sstat, begin=lambda work: work())  # type: ignore[arg-type]
    for minute in range(8):
        idle.look([JOB], {}, NOW + 60.0 * minute, hung={JOB.id})
    assert kinds(store) == []
    assert idle.rows() == {}
    assert idle.idle[JOB.id].seconds >= 200.0

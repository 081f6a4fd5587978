"""Each run that Slurm could not launch becomes one event."""

from __future__ import annotations

from dataclasses import replace

from memory_store import MemoryStore

from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId, UserName
from hopsd.model.reading import JobReading, SlurmState
from hopsd.model.step import OutcomeStatus, Step, StepKind, StepOutcome
from hopsd.service.failed_starts import FailedStarts

HELD_JOB = JobReading(
    id=JobId("17"),
    user=UserName("ann"),
    uid=1000,
    name="train",
    comment="hops:reqs=2",
    partition="main",
    state=SlurmState.PENDING,
    submit=0.0,
    restarts=1,
    launch_failed=True,
)
TARGET = Allocation.of({"n0": 2})
UNDONE_START = StepOutcome(
    Step(HELD_JOB.id, StepKind.START, target=TARGET), OutcomeStatus.FAILED, ran=TARGET
)


def kinds(store: MemoryStore) -> list[str]:
    return [event.kind for event in store.events(job=HELD_JOB.id)]


def test_a_job_held_for_a_failed_launch_is_recorded_once_per_run() -> None:
    store = MemoryStore()
    starts = FailedStarts(store)  # type: ignore[arg-type]
    for _ in range(3):
        starts.look([HELD_JOB])
    assert kinds(store) == ["launch_failed"]
    FailedStarts(store).look([HELD_JOB])  # type: ignore[arg-type]  # another hopsd
    assert kinds(store) == ["launch_failed"]
    (event,) = store.events(job=HELD_JOB.id)
    starts.look([replace(HELD_JOB, launch_failed=False)])
    starts.look([replace(HELD_JOB, restarts=2, submit=event.at + 1.0)])
    assert kinds(store) == ["launch_failed"] * 2


def test_a_start_undone_by_slurm_is_recorded_with_its_nodes() -> None:
    store = MemoryStore()
    starts = FailedStarts(store)  # type: ignore[arg-type]
    starts.note_outcomes([UNDONE_START, replace(UNDONE_START, ran=Allocation())])
    (event,) = store.events(job=HELD_JOB.id)
    assert "n0" in event.text
    starts.look([HELD_JOB])
    assert kinds(store) == ["launch_failed"]

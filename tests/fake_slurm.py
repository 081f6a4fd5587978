"""An adapter in memory with its own clock, which starts released jobs as Slurm does."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from hopsd.errors import SlurmError
from hopsd.model.allocation import Allocation
from hopsd.model.history import JobRecord
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.reading import (
    USER_HOLD_BEGIN,
    Hold,
    JobReading,
    NodeReading,
    Reading,
    SlurmState,
)
from hopsd.model.script_options import NO_OPTIONS, ScriptOptions
from hopsd.slurm.adapter import Placement, SignalScope
from hopsd.slurm.shape import fill_nodes
from hopsd.slurm.steps.wave import usable_gpus

NODES = [NodeName(f"n{i}") for i in range(3)]


class FakeSlurm:
    """Starts released jobs as Slurm does, a second later; ``calls`` lists the requests."""

    name = "fake"

    def __init__(self) -> None:
        self.now = 1000.0
        self.table: dict[JobId, JobReading] = {}
        self.placements: dict[JobId, Allocation] = {}
        self.cores: dict[JobId, int] = {}
        self.nodes = tuple(NodeReading(name, GpuType("t"), 8, 32) for name in NODES)
        self.calls: list[tuple[str, object]] = []
        self.begins: dict[JobId, float] = {}
        self.on_signal: Callable[[JobReading], JobReading] = lambda job: job
        self.refuse: set[str] = set()
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.released_at: dict[JobId, float] = {}
        self.readings = 0
        self.requeued_at = 0.0
        self.signals: list[tuple[JobId, str, SignalScope]] = []

    def add(self, number: int, **fields: object) -> JobId:
        job = JobReading(
            JobId(str(number)), UserName("u"), 1, "j", "hops:reqs=1", "main",
            SlurmState.PENDING, 0.0, Hold.HOPS,
        )  # fmt: skip
        self.table[job.id] = replace(job, **fields)  # type: ignore[arg-type]
        return job.id

    def running(self, number: int, **gpus: int) -> JobId:
        allocation = Allocation.of(gpus)
        return self.add(number, state=SlurmState.RUNNING, hold=Hold.NONE, allocation=allocation)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        due = [act for due_at, act in self.later if due_at <= self.now]
        self.later = [(due_at, act) for due_at, act in self.later if due_at > self.now]
        for act in due:
            act()

    def change(self, job: JobId, **fields: object) -> None:
        self.table[job] = replace(self.table[job], **fields)  # type: ignore[arg-type]

    def note_call(self, operation: str, subject: object) -> None:
        self.calls.append((operation, subject))
        if operation in self.refuse:
            raise SlurmError(f"{operation} refused")

    def cluster(self) -> Reading:
        return Reading(self.now, self.nodes, tuple(self.table.values()))

    def read(self) -> Reading:
        self.readings += 1
        return self.cluster()

    def jobs(self) -> Sequence[JobReading]:
        self.readings += 1
        return tuple(self.table.values())

    def ended_jobs(self, records: Collection[JobRecord]) -> Mapping[JobId, JobReading | None]:
        return {record.id: None for record in records}

    def glance(self, jobs: Collection[JobId]) -> Mapping[JobId, JobReading]:
        return {job: self.table[job] for job in jobs if job in self.table}

    def hold(self, job: JobId, begin: float = 0.0) -> None:
        self.note_call("hold", job)
        hold = Hold.USER if begin >= USER_HOLD_BEGIN else Hold.HOPS
        self.change(job, hold=hold, begin=begin, requeued_held=False)

    def place(self, placement: Placement) -> None:
        self.note_call("place", placement.job)
        self.change(placement.job, requeued_held=False)
        self.placements[placement.job] = placement.allocation
        self.cores[placement.job] = placement.cores_per_gpu

    def release(self, jobs: Sequence[JobId]) -> None:
        self.note_call("release", tuple(jobs))
        for job in jobs:
            self.released_at[job] = self.now
            self.change(job, hold=Hold.NONE)
            begins = self.now + self.begins.get(job, 1.0)
            self.later.append((begins, lambda job=job: self._run(job)))  # type: ignore[misc]

    def _run(self, job: JobId) -> None:
        target = self.placements[job]
        free = usable_gpus(self.cluster())
        allocation = target if target.even else fill_nodes(free, target.nodes, target.gpus)
        if allocation and all(free[node] >= gpus for node, gpus in allocation):
            self.change(job, state=SlurmState.RUNNING, allocation=allocation, start=self.now)

    def signal(self, job: JobId, signal: str, scope: SignalScope) -> None:
        self.note_call("signal", job)
        self.signals.append((job, signal, scope))
        if signal not in ("STOP", "CONT"):
            self.table[job] = self.on_signal(self.table[job])

    def requeue_hold(self, job: JobId, *, ended: bool = False) -> None:
        self.note_call("requeue_hold", job)
        self.requeued_at = self.now
        if self.table[job].state.finished and not ended:
            return
        self.change(job, state=SlurmState.PENDING, hold=Hold.HOPS, allocation=Allocation())
        self.change(job, requeued_held=True)
        self.change(job, restarts=self.table[job].restarts + 1, submit=float(int(self.now)))

    def unpin(
        self,
        job: JobId,
        gpus: int,
        comment: str,
        *,
        nodes: int = 1,
        options: ScriptOptions = NO_OPTIONS,
        avoid: Sequence[NodeName] = (),
        begin_now: bool = False,
        partition: str = "",
    ) -> None:
        assert comment.endswith(" #hops-released")
        self.note_call("unpin begin" if begin_now else "unpin", job)

    def batch(self) -> AbstractContextManager[None]:
        return nullcontext()

    def writes(self) -> list[str]:
        return [operation for operation, _ in self.calls]

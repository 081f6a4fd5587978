"""An adapter that writes only while this process is the leader, and reports each answer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager

from hopsd.model.history import JobRecord
from hopsd.model.ids import JobId, NodeName
from hopsd.model.reading import JobReading, Reading
from hopsd.model.script_options import NO_OPTIONS, ScriptOptions
from hopsd.slurm.adapter import Adapter, Placement, SignalScope


class FencedAdapter:
    """Calls ``assure`` before each write, and an exception from it ends the apply; calls
    ``note_answer`` whenever Slurm has answered.

    Slurm has no request that is conditional on the leader. So a process that was stopped exactly
    between check and write may send at most one late request.
    """

    def __init__(
        self,
        adapter: Adapter,
        assure: Callable[[], None],
        note_answer: Callable[[], None] = lambda: None,
    ) -> None:
        self._adapter = adapter
        self._leads = assure
        self._note_answer = note_answer

    @property
    def name(self) -> str:
        return self._adapter.name

    def read(self) -> Reading:
        reading = self._adapter.read()
        self._note_answer()
        return reading

    def jobs(self) -> Sequence[JobReading]:
        jobs = self._adapter.jobs()
        self._note_answer()
        return jobs

    def ended_jobs(self, records: Collection[JobRecord]) -> Mapping[JobId, JobReading | None]:
        return self._adapter.ended_jobs(records)

    def glance(self, jobs: Collection[JobId]) -> Mapping[JobId, JobReading]:
        states = self._adapter.glance(jobs)
        self._note_answer()
        return states

    def hold(self, job: JobId, begin: float = 0.0) -> None:
        self._assure()
        self._adapter.hold(job, begin)

    def place(self, placement: Placement) -> None:
        self._assure()
        self._adapter.place(placement)

    def release(self, jobs: Sequence[JobId]) -> None:
        self._assure()
        self._adapter.release(jobs)

    def signal(self, job: JobId, signal: str, scope: SignalScope) -> None:
        self._assure()
        self._adapter.signal(job, signal, scope)

    def requeue_hold(self, job: JobId, *, ended: bool = False) -> None:
        self._assure()
        self._adapter.requeue_hold(job, ended=ended)

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
        self._assure()
        self._adapter.unpin(
            job,
            gpus,
            comment,
            nodes=nodes,
            options=options,
            avoid=avoid,
            begin_now=begin_now,
            partition=partition,
        )

    def batch(self) -> AbstractContextManager[None]:
        return self._adapter.batch()

    def _assure(self) -> None:
        self._note_answer()  # for the previous request
        self._leads()

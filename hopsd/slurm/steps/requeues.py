"""Tells a person's `scontrol requeuehold` from hops' own.

Slurm leaves the same behind after both: a held job that it would let begin two minutes later. hops
clears that time from each job that it requeued, so who finds it untouched finds a person's hold.
That hold gets the mark of all others (``USER_HOLD_BEGIN``), which outlasts hopsd.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

import structlog

from hopsd.errors import SlurmError, SlurmUnavailableError
from hopsd.model.ids import JobId
from hopsd.model.reading import USER_HOLD_BEGIN, Hold, JobReading, is_profile
from hopsd.slurm.adapter import Adapter
from hopsd.slurm.watch import refusals

log = structlog.get_logger()


class Requeues:
    """Asks for requeues, and knows which of those that Slurm shows it asked for."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._own_requeues: set[JobId] = set()
        self._knows_all = False

    def resume(self, jobs: Collection[JobId]) -> None:
        """Take the requeues of ``jobs``, too, for hops'."""
        self._own_requeues |= set(jobs)
        self._knows_all = True

    def doubt(self) -> None:
        """Until the next :meth:`resume`, judge no requeue: another hopsd may have asked for it."""
        self._knows_all = False

    def ask(self, job: JobId, *, ended: bool = False) -> None:
        """As :meth:`Adapter.requeue_hold`."""
        self._own_requeues.add(job)
        try:
            self._adapter.requeue_hold(job, ended=ended)
        except SlurmUnavailableError:
            raise
        except SlurmError:
            self._own_requeues.discard(job)
            raise

    def expect(self, job: JobId) -> None:
        """The job was asked to leave, and may hand itself back, as `hops_profiler.Checkpoint`."""
        self._own_requeues.add(job)

    def forget(self, job: JobId) -> None:
        """The job was placed: a later requeue is another."""
        self._own_requeues.discard(job)

    def settle(self, jobs: Iterable[JobReading]) -> tuple[JobReading, ...]:
        """``jobs``, all that Slurm knows, with the holds of those that a person requeued."""
        results = tuple(map(self.settle_one, jobs))
        self._own_requeues &= {job.id for job in results if not job.state.finished}
        return results

    def settle_one(self, job: JobReading) -> JobReading:
        """Clear the time from a job that hops requeued, and mark one that a person did."""
        if not job.requeued_held or not self._knows_all:
            return job
        is_own = job.id in self._own_requeues or is_profile(
            job.marks
        )  # a profile run ends so by itself
        errors: dict[JobId, str] = {}
        with refusals(errors, job.id):
            self._adapter.hold(job.id, 0.0 if is_own else USER_HOLD_BEGIN)
        if errors:  # tried again at the next look
            log.warning("hold", job=job.id, problem=errors[job.id])
        elif is_own:
            self._own_requeues.discard(job.id)
        else:
            log.info("held", job=job.id, did="its owner or an operator requeued and holds it")
        return job if is_own else replace(job, hold=Hold.USER)

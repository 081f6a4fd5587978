"""Distinguishes a person's `scontrol requeuehold` from hops' own.

Slurm leaves the same state after both: a held job with a begin time two minutes later. hops clears
this begin time from each job that it requeued, so a job that still has it was held by a person.
That job gets the mark of all user holds (``USER_HOLD_BEGIN``), which survives a restart of hopsd.
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
    """Requests requeues, and knows which of the requeues that Slurm shows hops requested."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._own_requeues: set[JobId] = set()
        self._knows_all = False

    def resume(self, jobs: Collection[JobId]) -> None:
        """Attribute the requeues of ``jobs`` to hops, too."""
        self._own_requeues |= set(jobs)
        self._knows_all = True

    def doubt(self) -> None:
        """Judge no requeue until the next :meth:`resume`: another hopsd may have requested it."""
        self._knows_all = False

    def ask(self, job: JobId, *, ended: bool = False) -> None:
        """Requeue a job, as :meth:`Adapter.requeue_hold` does."""
        self._own_requeues.add(job)
        try:
            self._adapter.requeue_hold(job, ended=ended)
        except SlurmUnavailableError:
            raise
        except SlurmError:
            self._own_requeues.discard(job)
            raise

    def expect(self, job: JobId) -> None:
        """Note that the job was asked to leave; `hops_profiler.Checkpoint` may then requeue it."""
        self._own_requeues.add(job)

    def forget(self, job: JobId) -> None:
        """Note that the job was placed: a later requeue is a different one."""
        self._own_requeues.discard(job)

    def settle(self, jobs: Iterable[JobReading]) -> tuple[JobReading, ...]:
        """Settle ``jobs``, all that Slurm knows; those that a person requeued are user holds."""
        results = tuple(map(self.settle_one, jobs))
        self._own_requeues &= {job.id for job in results if not job.state.finished}
        return results

    def settle_one(self, job: JobReading) -> JobReading:
        """Clear the begin time of a job that hops requeued; mark one that a person requeued."""
        if not job.requeued_held or not self._knows_all:
            return job
        # A profile run requeues itself.
        is_own = job.id in self._own_requeues or is_profile(job.marks)
        errors: dict[JobId, str] = {}
        with refusals(errors, job.id):
            self._adapter.hold(job.id, 0.0 if is_own else USER_HOLD_BEGIN)
        if errors:  # tried again at the next reading
            log.warning("hold", job=job.id, problem=errors[job.id])
        elif is_own:
            self._own_requeues.discard(job.id)
        else:
            log.info("held", job=job.id, did="its owner or an operator requeued and held it")
        return job if is_own else replace(job, hold=Hold.USER)

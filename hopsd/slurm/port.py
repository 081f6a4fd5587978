"""The interface between a round and a cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from hopsd.model.history import JobRecord
from hopsd.model.ids import JobId
from hopsd.model.reading import JobReading, Reading
from hopsd.model.step import Step, StepOutcome, Transition

SHADOW = "shadow"
"""The name of the port that changes nothing."""


class Port(Protocol):
    """Reads and changes a cluster: Slurm's, or the simulator's virtual one."""

    @property
    def name(self) -> str:
        """``pyslurm``, ``scontrol``, ``shadow`` or ``virtual``."""

    def read(self) -> Reading:
        """Read all GPU nodes and all jobs with a hops comment that Slurm still knows.

        Raises:
            SlurmUnavailableError: slurmctld does not answer.
        """

    def ended_jobs(self, records: Collection[JobRecord]) -> Mapping[JobId, JobReading | None]:
        """Return how these jobs, which Slurm no longer knows, ended; None for a job that its
        accounting does not know either. Jobs are left out while the answer is pending.
        """

    def apply(self, steps: Sequence[Step]) -> Sequence[StepOutcome]:
        """Begin the steps, vacating before placing; returns one outcome per step, in order.

        Idempotent: a step whose goal is already reached changes nothing and is UNCHANGED.
        A failed step leaves its job held or running, never released without a placement. A step
        that takes longer than a few seconds, for whatever reason, is UNDER_WAY.

        Raises:
            SlurmUnavailableError: slurmctld stopped answering; steps may be half done.
        """

    @property
    def under_way(self) -> tuple[Transition, ...]:
        """The steps that are under way."""

    def carry_on(self) -> Sequence[StepOutcome]:
        """Continue the steps under way, without waiting; returns the outcomes of those that have
        finished.

        Raises:
            SlurmUnavailableError: as for :meth:`apply`.
        """

    def let_go_on(self, jobs: Collection[JobId]) -> None:
        """Let jobs that an interrupted plan was about to stop run on: continue the scripts that a
        warning stopped.
        """

    def doubt_requeues(self) -> None:
        """Until :meth:`resume`, attribute no requeue to a person: another hopsd may have led."""

    def resume(
        self, transitions: Sequence[Transition], requeued_jobs: Collection[JobId] = ()
    ) -> None:
        """Take over these steps, which another hopsd had begun or this one when it was interrupted,
        in place of those that this port has under way. The next :meth:`carry_on` checks their
        state. ``requeued_jobs`` are other jobs that hops, not a person, requeued and holds.

        Raises:
            SlurmUnavailableError: slurmctld does not answer; nothing is under way.
        """


class InstantPort:
    """Methods of a port without accounting, whose steps have finished when ``apply`` returns."""

    def ended_jobs(self, records: Collection[JobRecord]) -> Mapping[JobId, JobReading | None]:
        return {record.id: None for record in records}

    @property
    def under_way(self) -> tuple[Transition, ...]:
        return ()

    def carry_on(self) -> Sequence[StepOutcome]:
        return ()

    def let_go_on(self, jobs: Collection[JobId]) -> None:
        """Do nothing: no job was warned."""

    def doubt_requeues(self) -> None:
        """Do nothing: this port requeues no job."""

    def resume(
        self, transitions: Sequence[Transition], requeued_jobs: Collection[JobId] = ()
    ) -> None:
        """Do nothing: the next reading shows the state of steps that were under way."""

"""The interface between a round and a cluster."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from hopsd.model.ids import JobId
from hopsd.model.reading import Reading
from hopsd.model.step import Step, StepOutcome, Transition

SHADOW = "shadow"
"""The name of the port that changes nothing."""


class Port(Protocol):
    """Reads a cluster and changes it. The simulator's virtual cluster is one as well."""

    @property
    def name(self) -> str:
        """``pyslurm``, ``scontrol``, ``shadow`` or ``virtual``."""

    def read(self) -> Reading:
        """All GPU nodes and all jobs with a hops comment, finished ones while Slurm knows them.

        Raises:
            SlurmUnavailableError: slurmctld does not answer.
        """

    def apply(self, steps: Sequence[Step]) -> Sequence[StepOutcome]:
        """Begin the steps, vacating before placing; one outcome per step, in order.

        Idempotent: a step whose goal is already reached changes nothing and is UNCHANGED.
        A failed step leaves its job held or running, never released to nowhere. A step that takes
        longer than a few seconds, whatever its job or Slurm does, is UNDER_WAY.

        Raises:
            SlurmUnavailableError: slurmctld stopped answering; steps may be half done.
        """

    @property
    def under_way(self) -> tuple[Transition, ...]:
        """The steps that are under way."""

    def carry_on(self) -> Sequence[StepOutcome]:
        """Do what is due for the steps under way, without waiting; the outcomes of those that are
        over.

        Raises:
            SlurmUnavailableError: as :meth:`apply`.
        """

    def let_go_on(self, jobs: Collection[JobId]) -> None:
        """Jobs that an interrupted plan was to stop stay where they run: undo what a warning did to
        their scripts.
        """

    def doubt_requeues(self) -> None:
        """Until :meth:`resume`, take no requeue for a person's: another hopsd may have led."""

    def resume(
        self, transitions: Sequence[Transition], requeued_jobs: Collection[JobId] = ()
    ) -> None:
        """Take up these steps, in place of what this port has under way: another hopsd had begun
        them, or this one was interrupted. Their next :meth:`carry_on` looks at what became of
        them. ``requeued_jobs``: other jobs that hops, not a person, requeued and holds.

        Raises:
            SlurmUnavailableError: slurmctld does not answer; nothing is under way.
        """


class InstantPort:
    """What a port has in common whose steps are over when ``apply`` returns."""

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
        """Take up nothing: what was under way is seen in the next reading."""

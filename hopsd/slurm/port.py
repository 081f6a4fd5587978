"""The interface between a round and a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hopsd.model.reading import Reading
from hopsd.model.step import Step, StepOutcome

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
        """Carry out the steps, vacating before placing; one outcome per step, in order.

        Idempotent: a step whose goal is already reached changes nothing and is UNCHANGED.
        A failed step leaves its job held or running, never released to nowhere.

        Raises:
            SlurmUnavailableError: slurmctld stopped answering; steps may be half done.
        """

"""A step that is under way in Slurm: what one tick leaves for the next to carry on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hopsd.model.step import Step


class Phase(StrEnum):
    """``LEAVING``: the job runs and was warned; its grace lasts. ``STOPPING``: its requeue was
    requested; KillWait and epilog run. ``WAITING``: held, until its target is free. ``DEFERRED``:
    held; Slurm refused its start while other jobs were leaving, and it claims no GPUs until they
    have left. ``STARTING``: released; Slurm has not started it yet.
    """

    LEAVING = "leaving"
    STOPPING = "stopping"
    WAITING = "waiting"
    DEFERRED = "deferred"
    STARTING = "starting"

    @property
    def on_nodes(self) -> bool:
        """Whether the job still has its old GPUs."""
        return self in (Phase.LEAVING, Phase.STOPPING)


@dataclass(frozen=True, slots=True)
class Transition:
    """A step, the phase it is in, and the ``seconds`` that hopsd has watched it there.

    Only watched seconds count: a grace is never shorter because a clock was set or hopsd was down.
    ``signal``, ``signalled``: what the job was warned with, and when (epoch); empty and 0: nothing.
    ``grace``: seconds from the signal to the requeue. ``vacated``: when it left its nodes (epoch),
    None: it has not. ``released``: when Slurm was let start it (epoch); ``restarts``: its count
    before that.
    """

    step: Step
    phase: Phase
    seconds: float = 0.0
    signal: str = ""
    signalled: float = 0.0
    grace: float = 0.0
    vacated: float | None = None
    released: float = 0.0
    restarts: int = 0

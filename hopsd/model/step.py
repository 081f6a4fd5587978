"""What a port is asked to do, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId, NodeName


class StepKind(StrEnum):
    """``HOLD``: a pending job Slurm could start by itself is held again.

    ``START``: a held job gets ``target``. ``PREEMPT``: checkpoint signal, grace, requeue held.
    ``MOVE``: PREEMPT, then START on ``target``. ``RELEASE``: given back to plain Slurm,
    which starts it by its own rules with ``Step.gpus`` GPUs on any nodes but ``Step.avoid``.
    ``REQUEUE``: a job that failed in a profile run, or died of the checkpoint signal, is put back,
    held.
    """

    HOLD = "hold"
    START = "start"
    PREEMPT = "preempt"
    MOVE = "move"
    RELEASE = "release"
    REQUEUE = "requeue"


@dataclass(frozen=True, slots=True)
class Step:
    """One job's change. ``current`` is where it ran when the plan was made.

    ``gpus``, ``avoid`` and ``least_nodes`` are for RELEASE alone: how many GPUs plain Slurm gives
    the job, on which nodes it must not, and how many it takes for so many GPUs. ``profiling``: the
    step belongs to a profile run, which measures ``iterations`` at most (0: as it likes).
    """

    job: JobId
    kind: StepKind
    current: Allocation = field(default_factory=Allocation)
    target: Allocation = field(default_factory=Allocation)
    profiling: bool = False
    gpus: int = 0
    avoid: tuple[NodeName, ...] = ()
    least_nodes: int = 1
    iterations: int = 0


class OutcomeStatus(StrEnum):
    """``UNCHANGED``: Slurm already was as wanted. ``GONE``: the job ended meanwhile."""

    DONE = "done"
    UNCHANGED = "unchanged"
    GONE = "gone"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """``actual`` is the allocation read back from Slurm, never the wish. ``ran``: where the job ran
    instead, if that run was over when it was read back, or was ended since it was not as planned.
    ``started``: when Slurm says that the run began, or when it was released; 0: no run began.
    ``reason``: Slurm's own word for why a job that was released did not start, empty: it gave none.

    ``vacated``: when the job was seen to have left ``step.current``, None: it did not, or
    nobody knows.
    """

    step: Step
    status: OutcomeStatus
    actual: Allocation = field(default_factory=Allocation)
    error: str = ""
    started: float = 0.0
    seconds: float = 0.0
    vacated: float | None = None
    reason: str = ""
    ran: Allocation = field(default_factory=Allocation)

"""The changes that a port is asked to make, and their outcomes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId, NodeName


class StepKind(StrEnum):
    """The kind of change.

    ``HOLD``: hold a pending job again that Slurm could start by itself. ``START``: start a held job
    on ``target``. ``PREEMPT``: send the checkpoint signal, wait for the grace, requeue and hold.
    ``MOVE``: PREEMPT, then START on ``target``. ``RELEASE``: give the job back to plain Slurm,
    which starts it by its own rules with ``Step.gpus`` GPUs on any nodes but ``Step.avoid``.
    ``REQUEUE``: requeue and hold a job that failed in a profile run or was killed by the checkpoint
    signal.
    """

    HOLD = "hold"
    START = "start"
    PREEMPT = "preempt"
    MOVE = "move"
    RELEASE = "release"
    REQUEUE = "requeue"


@dataclass(frozen=True, slots=True)
class Step:
    """A change to one job. ``current``: where the job ran when the plan was made.

    ``gpus``, ``avoid`` and ``least_nodes`` are for RELEASE only: how many GPUs plain Slurm gives
    the job, which nodes it must not use, and the fewest nodes that have that many GPUs.
    ``partition``: the requested partitions in which the plan counts the job, "" for all of them.
    ``profiling``: the step belongs to a profile run, which measures at most ``iterations`` (0: the
    profiler's default). ``cause``: tells the user for whom the job makes room, "" if for the plan.
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
    partition: str = ""
    cause: str = ""


class OutcomeStatus(StrEnum):
    """The status of a step.

    ``UNCHANGED``: nothing had to be changed in Slurm. ``GONE``: the job has ended in the meantime.
    ``PUT_OFF``: a start that was not tried, since earlier ones took long, or that Slurm did not
    consider, or refused only for now; the job is held. ``UNDER_WAY``: not finished yet; later ticks
    continue the step and report its outcome.
    """

    DONE = "done"
    UNCHANGED = "unchanged"
    GONE = "gone"
    FAILED = "failed"
    PUT_OFF = "put_off"
    UNDER_WAY = "under_way"


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """The result of a step. ``actual``: the allocation read back from Slurm, never the target.

    ``ran``: where the job ran instead, if that run had already ended when read back, or was ended
    because it was not as planned. ``started``: when the run began according to Slurm, or when the
    job was released; 0 if no run began. ``reason``: Slurm's reason why a released job did not
    start, empty if none was given. ``warned``: when the job was sent the signal in whose grace it
    ended (epoch), 0 if it did not end that way. ``vacated``: when the job was seen to have left
    ``step.current``, None if it has not, or if that is unknown.
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
    warned: float = 0.0


class Phase(StrEnum):
    """The phase of a step under way.

    ``LEAVING``: the job runs and was warned; its grace has not expired. ``STOPPING``: its requeue
    was requested; KillWait and epilog run. ``WAITING``: it is held until its target is free.
    ``DEFERRED``: it is held; Slurm refused its start while other jobs were leaving, and it claims
    no GPUs until they have left. ``STARTING``: it is released; Slurm has not started it yet.
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
    ``signal``, ``signalled``: the signal that warned the job, and when (epoch); empty and 0 if none
    was sent. ``grace``: seconds from the signal to the requeue. ``vacated``: when the job left its
    nodes (epoch), None if it has not. ``released``: when the job was released for Slurm to start it
    (epoch); ``restarts``: its restart count before that.
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
